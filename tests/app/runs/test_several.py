"""Several runs of each rank: the best is kept, and a kill costs no run that was done."""

from dataclasses import replace

import numpy as np
import pytest

import factormer
from factormer.app.runs import FitOptions, RunFolder, fit
from factormer.many import folder as sweeps
from tests.app.runs import cases

OPTIONS = FitOptions(max_iter=20, n_init=6, seed=3)


class Killed(BaseException):
    """An error that no part of the program catches."""


@pytest.fixture
def computed(monkeypatch) -> list[int]:
    """The jobs of each piece that is begun; a piece is one job."""
    seen: list[int] = []
    plain = sweeps.batches
    monkeypatch.setattr(sweeps, "_WORK", (0.0, 0.0))

    def watched(jobs, *, until):
        seen.append(len(jobs))
        return plain(jobs, until=until)

    monkeypatch.setattr(sweeps, "batches", watched)
    return seen


def test_the_best_run_is_kept(tmp_path):
    data = cases.images()
    told: list[tuple[int, float]] = []
    results = fit(data, [2, 3], OPTIONS, tmp_path, ran=lambda *now: told.append(now))
    for result in results:
        runs = factormer.factorize_many(
            data.V, [result.rank], n_init=6, max_iter=20, random_state=3
        )
        kept = RunFolder(tmp_path).factors(result.rank)
        [run] = [run for run in runs if np.array_equal(run.W, kept["W"])]
        np.testing.assert_array_equal(kept["H"], run.H)
        assert result.rmse == pytest.approx(runs.rmse.min())
        assert (result.status, result.iterations) == (run.status.name, run.n_iter)
    assert [done for done, _ in told] == 2 * [1, 2, 3, 4, 5, 6]
    assert told[5][1] == pytest.approx(results[0].rmse)
    assert not list(tmp_path.glob("*.runs"))
    assert fit(data, [2, 3], OPTIONS, tmp_path) == results


@pytest.mark.parametrize("what", ["mask", "weights", "missing", "loss", "penalty", "symmetric"])
def test_several_runs_of_every_kind(tmp_path, what):
    data, given = cases.topics(), {}
    options = replace(OPTIONS, max_iter=5, init="random")
    if what in ("mask", "weights"):
        data = cases.images()
        rng = np.random.default_rng(0)
        given = {what: (rng.random(data.V.shape) > 0.2) * 1.0}
    elif what == "missing":
        options = replace(options, missing="zeros")
    elif what == "loss":
        options = replace(options, loss="kullback-leibler")
    elif what == "penalty":
        options = replace(options, regularize_h=("l1:0.1",))
    else:
        data = cases.images()
        data = replace(data, V=data.V @ data.V.T, columns=data.rows)
        options = replace(options, symmetric=True)
    [several] = fit(data, [2], options, tmp_path / "several", **given)
    [one] = fit(data, [2], replace(options, n_init=1), tmp_path / "one", **given)
    assert several.objective <= one.objective * (1 + 1e-6)


def test_a_killed_fit_goes_on_with_the_runs_that_are_left(tmp_path, computed):
    data = cases.images()
    whole = fit(data, [2, 3], OPTIONS, tmp_path / "whole")
    computed.clear()

    def kill(done, error):
        if len(computed) == 8:
            raise Killed

    with pytest.raises(Killed):
        fit(data, [2, 3], OPTIONS, tmp_path / "killed", ran=kill)
    assert (tmp_path / "killed" / "rank-3.runs").is_dir()
    with pytest.raises(ValueError, match="a run with n_init 6, not 7"):
        fit(data, [4], replace(OPTIONS, n_init=7), tmp_path / "killed")
    after = fit(data, [2, 3], OPTIONS, tmp_path / "killed")
    assert sum(computed) == 12  # none was made twice
    assert not list((tmp_path / "killed").glob("*.runs"))
    for ours, theirs in zip(after, whole, strict=True):
        assert (ours.rank, ours.rmse, ours.status) == (theirs.rank, theirs.rmse, theirs.status)


def test_an_interrupted_fit_keeps_the_best_so_far(tmp_path, computed):
    data = cases.images()

    def stop(done, error):
        if done == 4:
            raise KeyboardInterrupt

    [first] = fit(data, [3, 4], OPTIONS, tmp_path, ran=stop)
    assert (first.rank, first.status) == (3, "INTERRUPTED")
    results = fit(data, [3, 4], OPTIONS, tmp_path)
    assert [result.rank for result in results] == [3, 4]
    assert all(result.is_finished for result in results)
    assert sum(computed) == 12
    assert results[0].rmse <= first.rmse * (1 + 1e-9)  # of equal runs the first is kept


def test_an_interrupt_before_the_first_run_leaves_nothing(tmp_path, monkeypatch):
    def stop(jobs, *, until):
        raise KeyboardInterrupt

    monkeypatch.setattr(sweeps, "batches", stop)
    with pytest.raises(KeyboardInterrupt):
        fit(cases.images(), [3], OPTIONS, tmp_path)
    assert not RunFolder(tmp_path).results()


def test_without_time_there_is_a_result_all_the_same(tmp_path):
    [result] = fit(cases.images(), [3], replace(OPTIONS, time_limit=1e-9), tmp_path)
    assert result.status == "TIME_LIMIT"


def test_runs_that_would_be_the_same_are_refused(tmp_path):
    with pytest.raises(ValueError, match="init is 'nndsvd', which would be the same for each of 6"):
        fit(cases.images(), [3], replace(OPTIONS, init="nndsvd"), tmp_path)
    with pytest.raises(ValueError, match="n_init is 0; it must be a whole number of at least 1"):
        fit(cases.images(), [3], replace(OPTIONS, n_init=0), tmp_path)


def test_leavings_of_a_kill_after_the_last_run_go(tmp_path):
    fit(cases.images(), [3], OPTIONS, tmp_path)
    RunFolder(tmp_path).runs(3).mkdir()
    fit(cases.images(), [3], OPTIONS, tmp_path)
    assert not RunFolder(tmp_path).runs(3).exists()
    RunFolder(tmp_path).runs(4).mkdir()
    fit(cases.images(), [3], replace(OPTIONS, n_init=1), tmp_path, fresh=True)
    assert not RunFolder(tmp_path).runs(4).exists()


def test_runs_of_an_older_version_had_one_start(tmp_path):
    options = replace(OPTIONS, n_init=1)
    fit(cases.images(), [3], options, tmp_path)
    path = tmp_path / "run.json"
    path.write_text(path.read_text().replace(',\n  "n_init": 1', ""))
    assert "n_init" not in path.read_text()
    assert fit(cases.images(), [3, 4], options, tmp_path)
