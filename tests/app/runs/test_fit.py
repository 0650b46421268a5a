"""Runs: what they keep, that it can be read back, and that they go on where they were stopped."""

import csv
import importlib
import json
from dataclasses import replace

import numpy as np
import pytest

import factormer
from factormer.app.runs import FitOptions, RunFolder, fit, keeper
from factormer.run import thresholds
from tests.app.runs import cases

OPTIONS = FitOptions(max_iter=20)
runs_fit = importlib.import_module("factormer.app.runs.fit")  # whose name is that of its function


def table(path) -> tuple[list[str], list[list[str]]]:
    with path.open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    return head, rows


def test_a_run_keeps_factors_trace_options_and_versions(tmp_path):
    data = cases.topics()
    [result] = fit(data, [3], OPTIONS, tmp_path / "new" / "run", command="factormer fit x")
    folder = RunFolder(tmp_path / "new" / "run")
    factors = folder.arrays("rank-3", "factors.npz")
    W, H = factors["W"], factors["H"]
    assert (W.shape, H.shape) == ((30, 3), (20, 3))
    V = data.V.toarray()
    assert result.rmse == pytest.approx(np.sqrt(np.mean((V - W @ H.T) ** 2)))
    assert result.relative_error == pytest.approx(np.linalg.norm(V - W @ H.T) / np.linalg.norm(V))
    assert result.explained == pytest.approx(1 - result.relative_error**2)
    assert result.svd_rmse is not None
    assert result.svd_rmse <= result.rmse
    assert sum(result.shares) == pytest.approx(1)
    assert result.shares == sorted(result.shares, reverse=True)

    head, rows = table(folder.rank(3) / "H.csv")
    assert head == ["term", "component 1", "component 2", "component 3"]
    assert [row[0] for row in rows] == list(data.columns.labels or ())
    np.testing.assert_allclose([[float(x) for x in row[1:]] for row in rows], H, rtol=1e-6)
    head, rows = table(folder.rank(3) / "trace.csv")
    assert head == ["iteration", "seconds", "rmse", "objective"]
    assert [int(row[0]) for row in rows] == list(range(result.iterations + 1))

    run = json.loads((folder.path / "run.json").read_text(encoding="utf-8"))
    assert run["command"] == "factormer fit x"
    assert run["options"]["max_iter"] == 20
    assert run["data"]["shape"] == [30, 20]
    assert {"factormer", "torch", "python", "machine"} <= run["made_with"].keys()
    assert folder.axes() == (data.rows, data.columns)
    assert folder.results() == [result]


def test_the_result_is_that_of_factorize(tmp_path):
    data = cases.images()
    fit(data, [3], replace(OPTIONS, loss="kullback-leibler"), tmp_path)
    factors = RunFolder(tmp_path).arrays("rank-3", "factors.npz")
    expected = factormer.factorize(data.V, 3, loss="kullback-leibler", max_iter=20)
    np.testing.assert_array_equal(factors["W"], expected.W)
    np.testing.assert_array_equal(factors["H"], expected.H)


@pytest.mark.parametrize(
    "options",
    [
        {"loss": 1.5},
        {"regularize_w": ("l1:0.1",), "regularize_h": ("l2:0.1",)},
        {"regularize_h": ("simplex:1:columns",)},
        {"missing": "zeros"},
        {"solver": "hals", "init": "random", "accelerator": None},
        {"time_limit": 5.0, "device": "cpu", "seed": None},
    ],
    ids=str,
)
def test_every_option_reaches_the_engine(tmp_path, options):
    [result] = fit(cases.topics(), [2], FitOptions(max_iter=5, **options), tmp_path)
    assert result.iterations <= 5
    assert (result.svd_rmse is None) == ("missing" in options)


def test_symmetric_data(tmp_path):
    data = cases.images()
    data = replace(data, V=data.V @ data.V.T, columns=data.rows)
    fit(data, [2], FitOptions(symmetric=True, max_iter=5), tmp_path)
    factors = RunFolder(tmp_path).arrays("rank-2", "factors.npz")
    np.testing.assert_allclose(factors["W"], factors["H"])


def test_unknown_entries_do_not_count(tmp_path):
    data = cases.holes()
    known = np.isfinite(data.V)
    [result] = fit(data, [3], OPTIONS, tmp_path / "nan")
    factors = RunFolder(tmp_path / "nan").arrays("rank-3", "factors.npz")
    R = (data.V - factors["W"] @ factors["H"].T)[known]
    assert result.rmse == pytest.approx(np.sqrt(np.mean(R**2)))
    assert result.svd_rmse is None
    filled = replace(data, V=np.where(known, data.V, 7.0))
    [masked] = fit(filled, [3], OPTIONS, tmp_path / "mask", mask=known * 1.0)
    assert masked.rmse == pytest.approx(result.rmse)


def test_weights_say_how_much_an_entry_counts(tmp_path):
    data = cases.images()
    weights = np.random.default_rng(0).random(data.V.shape)
    weights[0] = 0.0
    [result] = fit(data, [2], OPTIONS, tmp_path, weights=weights)
    factors = RunFolder(tmp_path).arrays("rank-2", "factors.npz")
    expected = factormer.factorize(data.V, 2, weights=weights, max_iter=20)
    W, H = expected.W, expected.H
    np.testing.assert_allclose(factors["H"], H)
    assert result.objective == pytest.approx(float(expected.loss))
    R = (data.V - W @ H.T) ** 2
    assert result.rmse == pytest.approx(np.sqrt(np.average(R, weights=weights)))
    assert result.mean_weight == pytest.approx(weights[1:].mean())  # of what is known
    assert result.svd_rmse is None
    assert RunFolder(tmp_path).description()["data"]["has_weights"]
    with pytest.raises(ValueError, match="holds a run on other data"):
        fit(data, [2], OPTIONS, tmp_path)


def test_a_column_of_weights_is_one_for_each_row(tmp_path):
    data = cases.images()
    rows = np.linspace(0.1, 1, len(data.V))
    fit(data, [2], OPTIONS, tmp_path, weights=rows[:, None])
    expected = factormer.factorize(data.V, 2, weights=rows, max_iter=20)
    H = RunFolder(tmp_path).arrays("rank-2", "factors.npz")["H"]
    np.testing.assert_allclose(H, expected.H)


# Going on


def test_ranks_that_are_done_are_not_fitted_again(tmp_path):
    begun: list[int] = []
    first = fit(cases.images(), [2, 3], OPTIONS, tmp_path, begin=begun.append)
    again = fit(cases.images(), [2, 3, 4], OPTIONS, tmp_path, begin=begun.append)
    assert begun == [2, 3, 4]
    assert again[:2] == first
    assert [result.rank for result in RunFolder(tmp_path).results()] == [2, 3, 4]


@pytest.fixture
def looks_every_ten(monkeypatch):
    """Runs with tol=0 look at the clock and at signals every ten iterations."""
    monkeypatch.setattr(thresholds, "LOOKS", 0.0)


def test_an_interrupted_fit_is_kept_and_gone_on_with(tmp_path, looks_every_ten):
    options = FitOptions(max_iter=24, tol=0.0)

    def stop(rank, row):
        if rank == 3 and row.iteration == 5:
            raise KeyboardInterrupt

    results = fit(cases.images(), [2, 3, 4], options, tmp_path, watch=stop)
    assert [(r.rank, r.status) for r in results] == [(2, "MAX_ITER"), (3, "INTERRUPTED")]
    assert results[1].iterations == 5
    begun: list[int] = []
    results = fit(cases.images(), [2, 3, 4], options, tmp_path, begin=begun.append)
    assert begun == [3, 4]
    assert [r.status for r in results] == ["MAX_ITER"] * 3
    trace = RunFolder(tmp_path).trace(3)
    np.testing.assert_array_equal(trace[:, 0], np.arange(25))
    assert (np.diff(trace[:, 1]) >= 0).all()
    assert trace[-1, 2] <= trace[5, 2]


class Killed(BaseException):
    """An error that no part of the program catches."""


def kill_at(where: tuple[int, int]):
    def watch(rank, row):
        if (rank, row.iteration) == where:
            raise Killed

    return watch


def test_a_killed_run_keeps_all_ranks_that_are_done(tmp_path):
    options = FitOptions(max_iter=12, tol=0.0)
    with pytest.raises(Killed):
        fit(cases.images(), [2, 3, 4], options, tmp_path, watch=kill_at((4, 5)))
    before = RunFolder(tmp_path).results()
    assert [r.rank for r in before] == [2, 3]
    begun: list[int] = []
    after = fit(cases.images(), [2, 3, 4], options, tmp_path, begin=begun.append)
    assert begun == [4]
    assert after[:2] == before


def test_a_long_fit_that_is_killed_goes_on_from_where_it_stood(
    tmp_path, monkeypatch, looks_every_ten
):
    monkeypatch.setattr(runs_fit, "_LONG", 0)
    monkeypatch.setattr(keeper, "SECONDS", 0.0)
    data, options = cases.images(), FitOptions(max_iter=24, tol=0.0)
    with pytest.raises(Killed):
        fit(data, [3], options, tmp_path, watch=kill_at((3, 18)))
    [point] = tmp_path.glob("*.point.npz")
    kept = RunFolder(tmp_path).point(3)
    assert kept is not None
    np.testing.assert_array_equal(kept["trace"][:, 0], np.arange(16))
    found = np.sqrt(np.mean((data.V - kept["W"] @ kept["H"].T) ** 2))
    assert found == pytest.approx(kept["trace"][-1, 2], rel=1e-3)
    with pytest.raises(ValueError, match="a run with max_iter 24, not 25"):
        fit(data, [3], replace(options, max_iter=25), tmp_path)
    [result] = fit(data, [3], options, tmp_path)
    assert (result.iterations, result.status) == (24, "MAX_ITER")
    np.testing.assert_array_equal(RunFolder(tmp_path).trace(3)[:, 0], np.arange(25))
    assert not point.exists()


def test_points_of_a_killed_run_are_discarded_with_it(tmp_path):
    fit(cases.images(), [2], OPTIONS, tmp_path)
    RunFolder(tmp_path).keep_point(3, np.ones((2, 3)), np.ones((2, 3)), np.ones((1, 4)))
    fit(cases.images(), [2], OPTIONS, tmp_path, fresh=True)
    assert RunFolder(tmp_path).point(3) is None


def test_seconds_of_an_earlier_part_count(tmp_path):
    options = FitOptions(max_iter=2000, tol=0.0, time_limit=5.0)
    trace = np.array([[0, 0.0, 1.0, 1.0], [1, 4.999, 0.9, 0.9]])
    data = cases.images()
    rng = np.random.default_rng(0)
    with pytest.raises(Killed):
        fit(data, [2], options, tmp_path, watch=kill_at((2, 1)))
    W, H = rng.random((len(data.V), 2)), rng.random((data.V.shape[1], 2))
    RunFolder(tmp_path).keep_point(2, W, H, trace)
    [result] = fit(data, [2], options, tmp_path)
    assert result.status == "TIME_LIMIT"
    assert result.seconds < 6


def test_two_runs_at_once_are_kept_apart(tmp_path):
    with (
        RunFolder(tmp_path).held(),
        pytest.raises(ValueError, match=r"another run is using .*; wait for it, or choose"),
    ):
        fit(cases.images(), [2], OPTIONS, tmp_path)
    assert fit(cases.images(), [2], OPTIONS, tmp_path)


def test_leavings_of_a_killed_run_do_no_harm(tmp_path):
    (tmp_path / ".rank-2.new").mkdir()
    (tmp_path / ".rank-2.new" / "factors.npz").write_text("half")
    (tmp_path / ".run.json.0123abcd.new").write_text("{")
    (tmp_path / ".mine.0123abcd.new").write_text("kept")
    [result] = fit(cases.images(), [2], OPTIONS, tmp_path)
    assert result.is_finished
    assert [path.name for path in tmp_path.glob(".*")] == [".mine.0123abcd.new"]


@pytest.mark.parametrize("change", ["data", "mask", "option"])
def test_other_data_or_options_are_refused(tmp_path, change):
    data, options, mask = cases.images(), OPTIONS, None
    fit(data, [2], options, tmp_path)
    if change == "data":
        data = replace(data, V=data.V + 1)
    elif change == "mask":
        mask = np.ones(data.V.shape)
    else:
        options = replace(options, tol=0.5)
    sentence = "a run with tol 0.0001, not 0.5" if change == "option" else "a run on other data"
    with pytest.raises(ValueError, match=f"holds {sentence}; choose another --out"):
        fit(data, [2], options, tmp_path, mask=mask)
    (tmp_path / "mine.txt").write_text("kept")
    fit(data, [3], options, tmp_path, mask=mask, fresh=True)
    assert [result.rank for result in RunFolder(tmp_path).results()] == [3]
    assert (tmp_path / "mine.txt").exists()


WRONG = {
    "solver": ({"solver": "nonsense"}, "solver is 'nonsense'"),
    "init": ({"init": "nonsense"}, "init is 'nonsense'"),
    "a network's rank": ({"init": "init-r10"}, "serves only rank 10"),
    "a network's rank too": ({"accelerator": "accel-r10"}, "serves only rank 10"),
    "penalty": ({"regularize_w": ("simplex",), "solver": "mu"}, "only L1 and L2"),
    "loss": ({"loss": "itakura-saito", "missing": None}, "zeros, at which it is infinite"),
    "loss of a solver": ({"loss": 1.0, "solver": "cd"}, "squared error"),
    "seed": ({"seed": -1}, "random_state is -1"),
    "symmetry": ({"symmetric": True}, "square V"),
    "iterations": ({"max_iter": -1}, "max_iter is -1"),
}


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize(("options", "sentence"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_option_is_told_before_a_run_is_touched(tmp_path, fresh, options, sentence):
    data = cases.topics()
    with pytest.raises(ValueError, match=sentence):
        fit(data, [2, 10], replace(OPTIONS, **options), tmp_path, fresh=fresh)
    assert not list(tmp_path.iterdir())
    before = fit(data, [2], OPTIONS, tmp_path)
    with pytest.raises(ValueError, match=sentence):
        fit(data, [2, 10], replace(OPTIONS, **options), tmp_path, fresh=fresh)
    assert RunFolder(tmp_path).results() == before


def test_wrong_masks_are_told_before_a_run_is_touched(tmp_path):
    data = cases.images()
    before = fit(data, [2], OPTIONS, tmp_path)
    with pytest.raises(ValueError, match="neither 0 nor 1"):
        fit(data, [2], OPTIONS, tmp_path, mask=0.5 * np.ones(data.V.shape), fresh=True)
    assert RunFolder(tmp_path).results() == before


def test_a_place_that_cannot_hold_a_run_is_told(tmp_path):
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(OSError, match=r"cannot hold a run \(.*\); choose another --out"):
            fit(cases.images(), [2], OPTIONS, place)


def test_a_folder_without_a_run_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no run"):
        RunFolder(tmp_path).description()
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(ValueError, match=r"run.json is not valid JSON"):
        RunFolder(tmp_path).description()


@pytest.mark.parametrize("fresh", [False, True])
def test_files_that_no_run_has_made_are_left_alone(tmp_path, fresh):
    (tmp_path / "data.npz").write_bytes(b"mine")
    (tmp_path / "rank-notes").mkdir()
    with pytest.raises(ValueError, match=r"holds data\.npz, not part of a run; choose another"):
        fit(cases.topics(), [2], OPTIONS, tmp_path, fresh=fresh)
    assert (tmp_path / "data.npz").read_bytes() == b"mine"
    assert (tmp_path / "rank-notes").is_dir()
