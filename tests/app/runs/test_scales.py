"""Every number that is reported is right whatever the unit of V: that of V / c, scaled back."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

from factormer.app.cli import main
from factormer.app.report.payload import cosines, payload
from factormer.app.runs import FitOptions, RunFolder, fit
from factormer.app.runs.bound import svd_bound
from factormer.app.runs.residuals import residuals
from tests.app.runs import cases

SCALES = [1e-300, 1e-170, 1.0, 1e160, 1e300]


def small(X: np.ndarray, c: float) -> np.ndarray:
    return X / math.sqrt(c)


@pytest.mark.parametrize("c", SCALES)
@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("lopsided", [False, True])
def test_residuals(c, as_sparse, lopsided):
    rng = np.random.default_rng(0)
    V = rng.random((23, 17)) * (rng.random((23, 17)) < 0.5)
    W, H = rng.random((23, 3)), rng.random((17, 3))
    expected = residuals(V, W, H)
    assert expected.rmse == pytest.approx(np.sqrt(np.mean((V - W @ H.T) ** 2)))
    w, h = (c, 1.0) if lopsided else (math.sqrt(c), math.sqrt(c))
    scaled = scipy.sparse.csr_array(c * V) if as_sparse else c * V
    found = residuals(scaled, w * W, h * H)
    for name in ("rmse", "rms", "rows", "columns", "blocks", "V_blocks", "fit_blocks"):
        here, there = getattr(found, name) / c, getattr(expected, name)
        np.testing.assert_allclose(here, there, rtol=1e-9, atol=1e-12)
    assert found.relative == pytest.approx(expected.relative)


@pytest.mark.parametrize("c", SCALES)
@pytest.mark.parametrize("as_sparse", [False, True])
def test_bound(c, as_sparse):
    V = np.random.default_rng(0).random((30, 20))
    scaled = scipy.sparse.csr_array(c * V) if as_sparse else c * V
    np.testing.assert_allclose(svd_bound(scaled, 5) / c, svd_bound(V, 5), rtol=1e-9)


@pytest.mark.parametrize("c", SCALES)
def test_cosines(c):
    rng = np.random.default_rng(0)
    W = rng.random((8, 3))
    np.testing.assert_allclose(cosines(c * W), cosines(W))


@pytest.mark.parametrize("c", SCALES)
def test_a_run_and_its_page(c, tmp_path):
    data = cases.images()
    data = replace(data, V=data.V + 0.1 * np.random.default_rng(1).random(data.V.shape))
    scaled = replace(data, V=c * data.V)
    results = fit(scaled, [1, 2, 3], FitOptions(max_iter=20), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    for result in results:
        factors = folder.arrays(f"rank-{result.rank}", "factors.npz")
        V, W, H = data.V, small(factors["W"], c), small(factors["H"], c)
        error, norm = np.linalg.norm(V - W @ H.T), np.linalg.norm(V)
        assert result.rmse / c == pytest.approx(error / math.sqrt(V.size), rel=1e-6)
        assert result.relative_error == pytest.approx(error / norm, rel=1e-6)
        assert result.explained == pytest.approx(1 - (error / norm) ** 2)
        assert result.svd_rmse is not None
        assert result.svd_rmse <= result.rmse * (1 + 1e-9)
        sums = W.sum(axis=0) * H.sum(axis=0)
        np.testing.assert_allclose(result.shares, sums / sums.sum(), rtol=1e-6)
        half_square = float(np.sum((V - W @ H.T) ** 2)) / 2
        if 1e-100 < c < 1e100:
            assert result.objective == pytest.approx(half_square * c**2, rel=1e-6)
        else:  # no number of float64, and so none is told
            assert math.isnan(result.objective)
        trace = folder.trace(result.rank)
        assert trace[-1, 2] / c == pytest.approx(result.rmse / c, rel=1e-6)
        assert np.isfinite(trace[:, 3]).all() == (1e-100 < c < 1e100)
    shown = payload(folder)
    top = shown["results"][-1]
    assert shown["V"]["high"] / c == pytest.approx(data.V.max(), rel=1e-6)
    assert all(np.isfinite(row).all() for row in top["trace"])


@pytest.mark.parametrize("c", [1e-170, 1e160])
def test_the_command_line_tells_them(c, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    V = np.random.default_rng(0).random((20, 10))
    told = []
    for name, values in (("plain", V), ("scaled", c * V)):
        np.save(f"{name}.npy", values)
        assert main(["fit", f"{name}.npy", "--rank", "2", "--max-iter", "20"]) == 0
        told.append(capsys.readouterr().out.splitlines()[4].split())
    (_, plain, explained, *_), (_, scaled, *others) = told
    assert float(scaled) / c == pytest.approx(float(plain), rel=1e-3)
    assert others[0] == explained != "100.00%"
    assert main(["report", "runs/scaled"]) == 0
    assert main(["fit", "scaled.npy", "--rank", "2", "--max-iter", "20", "--json"]) == 0
    assert '"objective": null' in capsys.readouterr().out
