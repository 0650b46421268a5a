"""The page: whole, harmless and not too large, for data of every kind."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from factormer.app.read import Axis, Data
from factormer.app.report import write_report
from factormer.app.report.payload import consensus_matrix, cosines, payload
from factormer.app.runs import FitOptions, RunFolder, fit
from tests.app.runs import cases

OPTIONS = FitOptions(max_iter=5)
KINDS = [cases.images, cases.topics, cases.cube, cases.sound, cases.holes]


def data_of(text: str) -> dict:
    found = re.search(r'<script id="run" type="application/json">(.*?)</script>', text, re.S)
    assert found is not None
    return json.loads(found[1])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_page_holds_all_that_it_shows(tmp_path, kind):
    data = kind()
    fit(data, [1, 2, 3], OPTIONS, tmp_path)
    text = write_report(RunFolder(tmp_path)).read_text(encoding="utf-8")
    contents = data_of(text)
    assert contents == json.loads(json.dumps(payload(RunFolder(tmp_path))))
    assert [len(result["components"]) for result in contents["results"]] == [1, 2, 3]
    assert contents["columns"]["kind"] == data.columns.kind
    assert not re.search(r'(?:src|href)="(?!data:|#)', text)
    assert "https:" not in text
    assert "<!-- " not in text


@pytest.mark.parametrize(
    ("options", "sums"),
    [
        ({}, {}),
        ({"regularize_w": ("simplex",)}, {"W": {"total": 1.0, "by": "rows"}}),
        ({"regularize_h": ("l2:0.1", "simplex:5:columns")}, {"H": {"total": 5.0, "by": "columns"}}),
    ],
)
def test_shares_are_shown_as_they_are_and_all_else_by_its_peak(tmp_path, options, sums):
    fit(cases.cube(), [3], replace(OPTIONS, **options), tmp_path)
    shown = payload(RunFolder(tmp_path))
    assert shown["sums"] == sums
    stored = RunFolder(tmp_path).factors(3)
    for c, component in enumerate(shown["results"][0]["components"]):
        peaks = {name: stored[name][:, c].max() for name in "WH"}
        wanted = peaks if sums else {"W": peaks["W"] * peaks["H"], "H": 1.0}
        for name, peak in wanted.items():
            assert component[name]["high"] == pytest.approx(peak, rel=1e-5)
    for name, own in sums.items():
        axis = 1 if own["by"] == "rows" else 0
        np.testing.assert_allclose(stored[name].sum(axis=axis), own["total"], rtol=1e-4)


def test_names_in_the_data_are_never_markup(tmp_path):
    evil = "</script><script>alert(1)</script><!-- script -->"
    data = replace(cases.topics(name=evil), name=evil)
    fit(data, [2], OPTIONS, tmp_path, command=evil)
    text = write_report(RunFolder(tmp_path)).read_text(encoding="utf-8")
    assert text.count("</script>") == 2
    assert data_of(text)["name"] == evil


def test_page_of_large_data_and_many_ranks_stays_small(tmp_path):
    rng = np.random.default_rng(0)
    V = rng.random((5000, 4)) @ rng.random((4, 900))
    labels = tuple(f"a row of which the name is rather long, number {i}" for i in range(5000))
    rows, columns = Axis(5000, "row", labels=labels), Axis(900, "pixel", grid=(30, 30))
    data = Data(V.astype(np.float32), rows, columns, "large", "made up")
    fit(data, [1, 30], FitOptions(max_iter=1), tmp_path)
    page = write_report(RunFolder(tmp_path))
    assert page.stat().st_size < 5_000_000


def test_the_recommended_rank_is_opened_and_explained(tmp_path):
    """Of a run with hidden entries and several runs, under the loss that it minimised."""
    options = FitOptions(loss="kullback-leibler", repeats=4, holdout=0.25, max_iter=50)
    fit(cases.counts(), [1, 2, 3], options, tmp_path)
    contents = data_of(write_report(RunFolder(tmp_path)).read_text(encoding="utf-8"))
    assert contents["advice"]["by"] == "hidden"
    assert contents["results"][contents["opened"]]["rank"] == contents["advice"]["rank"] == 2
    assert "Hidden entries are predicted best" in contents["advice"]["text"]
    ranks, errors, _ = zip(*contents["hidden"], strict=True)
    stored = RunFolder(tmp_path).results()
    assert list(ranks) == [1, 2, 3]
    np.testing.assert_allclose(errors, [np.mean(r.held_out or []) for r in stored], rtol=1e-4)
    for shown, kept in zip(contents["results"], stored, strict=True):
        assert shown["divergence"] == pytest.approx(kept.divergence)
        matrix = shown["consensus"]
        assert matrix["shape"] == [20, 20]  # over samples, which are the columns
        assert sorted(matrix["rows"]) == list(range(20))
        assert matrix["high"] == 1.0
        assert matrix["runs"] == 4


def test_errors_of_hidden_entries_are_in_the_unit_of_the_rmse(tmp_path):
    fit(cases.topics(), [1, 2], FitOptions(max_iter=5, holdout=0.5), tmp_path)
    stored = RunFolder(tmp_path).results()
    errors = [error for _, error, _ in payload(RunFolder(tmp_path))["hidden"]]
    expected = [np.sqrt(2 * np.mean(r.held_out or [])) for r in stored]
    np.testing.assert_allclose(errors, expected, rtol=1e-4)


def test_a_large_consensus_matrix_is_shrunk():
    rng = np.random.default_rng(0)
    A = rng.random((600, 600))
    found = {"matrix": (A + A.T) / 2, "order": rng.permutation(600), "samples": np.arange(600)}
    shown = consensus_matrix(
        found | {"cophenetic": np.array(0.9), "kept": np.ones(7, bool), "errors": np.ones(7)},
        10_000,
    )
    assert shown["shape"] == [100, 100]
    assert shown["rows"] is None
    assert (shown["samples"], shown["runs"], shown["cophenetic"]) == (600, 7, 0.9)


def test_a_run_without_results_has_no_page(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(ValueError, match="holds no result yet"):
        write_report(RunFolder(tmp_path))


def test_cosines_of_components_that_are_gone_are_zero():
    X = np.array([[1.0, 0.0, 3.0], [0.0, 0.0, 4.0]])
    np.testing.assert_allclose(cosines(X), [[1, 0, 0.6], [0, 0, 0], [0.6, 0, 1]])
