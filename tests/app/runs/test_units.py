"""--scale sum: components that sum to 1, and their use in the units of the data."""

import json
from dataclasses import replace

import numpy as np
import pytest

from factormer import consensus, factorize
from factormer.app.report.payload import payload
from factormer.app.runs import FitOptions, RunFolder, fit
from tests.app.runs import cases

OPTIONS = FitOptions(loss="kullback-leibler", scale="sum", max_iter=50)


@pytest.mark.parametrize("repeats", [None, 3])
@pytest.mark.parametrize("samples", ["rows", "columns"])
def test_components_sum_to_1_and_use_is_in_counts(tmp_path, repeats, samples):
    data = cases.counts()  # 40 genes of 20 samples
    if samples == "rows":
        data = replace(data, V=data.V.T, rows=data.columns, columns=data.rows)
    fit(data, [2], replace(OPTIONS, repeats=repeats), tmp_path)
    folder = RunFolder(tmp_path)
    W, H = (folder.factors(2)[name] for name in "WH")
    parts, use = (H, W) if samples == "rows" else (W, H)
    np.testing.assert_allclose(parts.sum(axis=0), 1, rtol=1e-6)
    # Under Kullback–Leibler a fit keeps the sums of samples.
    np.testing.assert_allclose(use.sum(axis=1), data.V.sum(axis=int(samples == "rows")), rtol=0.02)
    balanced = factorize(data.V, 2, loss="kullback-leibler", max_iter=50)
    if repeats is None:
        np.testing.assert_allclose(W @ H.T, balanced.W @ balanced.H.T, rtol=1e-6)
    shown = payload(folder)
    assert shown["sums"] == {"H" if samples == "rows" else "W": {"total": 1.0, "by": "columns"}}
    side = "W" if samples == "rows" else "H"
    (_, most), *_ = shown["results"][0]["components"][0][f"{side}_top"]
    assert most == pytest.approx(use[:, 0].max(), rel=1e-3)


def test_a_run_without_the_option_matches_one_that_is_balanced(tmp_path):
    fit(cases.counts(), [2], replace(OPTIONS, scale="balanced"), tmp_path)
    path = tmp_path / "run.json"
    run = json.loads(path.read_text())
    del run["options"]["scale"]  # as it was before
    path.write_text(json.dumps(run))
    fit(cases.counts(), [2, 3], replace(OPTIONS, scale="balanced"), tmp_path)
    with pytest.raises(ValueError, match="holds a run with scale 'balanced', not 'sum'"):
        fit(cases.counts(), [2, 3], OPTIONS, tmp_path)
    assert payload(RunFolder(tmp_path))["sums"] == {}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"scale": "max"}, "scale is 'max'; choose one of 'balanced', 'sum'"),
        ({"regularize_h": ("l1:0.1",)}, "fix the scale of components: leave it out"),
    ],
)
def test_other_scales_are_refused_before_anything_is_written(tmp_path, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        fit(cases.counts(), [2], replace(OPTIONS, **options), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_consensus_has_the_scale_that_is_asked_for():
    found = consensus(cases.counts().V, 2, n_runs=3, scale="sum", max_iter=50)
    np.testing.assert_allclose(found.H.sum(axis=0), 1)
