"""The start from corners: the purest rows, dark ones too, and fits of shares that converge."""

from itertools import combinations

import numpy as np
import pytest
import scipy.sparse
import torch

from factormer import factorize
from factormer.data.intake import as_matrix
from factormer.penalties import Simplex, Volume
from factormer.problem.problem import Problem
from factormer.run.choose import choose
from factormer.run.request import Request
from factormer.run.result import Status
from factormer.starts import Vertices
from factormer.starts.vertices import corners, points

PURE = (3, 17, 30)


def mixtures(*, total: float = 1.0, noise: float = 0.0, dark: bool = True, purest: float = 1.0):
    """Mixtures of three spectra, one of them dark; the rows PURE are of one spectrum alone."""
    random = np.random.default_rng(5)
    H = random.uniform(0.1, 1.0, (12, 3)) * ([1.0, 0.05, 0.7] if dark else 1.0)
    W = random.dirichlet([1.0] * 3, 40)
    W = purest * W + (1 - purest) / 3
    if purest == 1:
        W[list(PURE)] = np.eye(3)
    return (total * W) @ H.T + noise * random.uniform(0, 1, (40, 12)), W, H


def angles(found: np.ndarray, H: np.ndarray) -> np.ndarray:
    """The least angle of each spectrum to a found one, in degrees."""
    unit = [X / np.linalg.norm(X, axis=0) for X in (H, found)]
    return np.degrees(np.arccos((unit[0].T @ unit[1]).clip(-1, 1))).min(axis=1)


@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
def test_pure_rows_are_found_dark_ones_too(make, rng):
    V, _, _ = mixtures()
    found = corners(points(as_matrix(make(V)), 3, rng))
    assert sorted(found.tolist()) == list(PURE)


def test_exchanges_end_at_the_largest_volume(rng):
    """The slow twin: the determinants of all choices."""
    V, _, _ = mixtures(noise=0.1)
    Z = points(as_matrix(V[:14]), 3, rng)
    sizes = {some: abs(float(torch.det(Z[list(some)]))) for some in combinations(range(14), 3)}
    found = tuple(sorted(corners(Z).tolist()))
    assert sizes[found] == pytest.approx(max(sizes.values()), rel=1e-5)


@pytest.mark.parametrize("total", [None, 1.0, 5.0])
def test_start_is_exact_for_pure_rows(total, rng):
    V, _, _ = mixtures(total=total or 1.0)
    problem = Problem(as_matrix(V), 3)
    for by in ("rows", "columns"):
        V_of = problem if by == "rows" else problem.T
        x = Vertices(by, total)(V_of, rng)
        x = x if by == "rows" else x.swap()
        np.testing.assert_allclose(x.W @ x.H.mT, V, atol=1e-8)
        if total is not None:
            np.testing.assert_allclose(x.W.sum(dim=1), total, rtol=1e-8)


def test_more_components_than_columns_start_somewhere(rng):
    x = Vertices()(Problem(as_matrix(np.random.default_rng(0).uniform(size=(6, 3))), 5), rng)
    assert x.W.shape == (6, 5)
    assert bool(x.H.isfinite().all())
    with pytest.raises(ValueError, match="takes one matrix"):
        Vertices()(Problem(as_matrix(np.ones((2, 6, 3))), 2), rng)


def test_shares_converge_and_name_the_spectra():
    V, _, H = mixtures(noise=0.01)
    result = factorize(V, 3, regularize_W=Simplex())
    assert "vertices" in str(result.plan)
    assert result.status is Status.CONVERGED
    np.testing.assert_allclose(result.W.sum(axis=1), 1, rtol=1e-6)
    bright = [0, 2]
    assert angles(result.H, H)[bright].max() < 6


def test_volume_brings_spectra_without_pure_rows_nearer():
    V, _, _ = mixtures(noise=0.01, dark=False, purest=0.75)
    plain = factorize(V, 3, regularize_W=Simplex(), init="random")
    misfit = 0.5 * np.square(V - plain.W @ plain.H.T).sum()
    tight = factorize(V, 3, regularize_W=Simplex(), regularize_H=Volume(misfit))
    assert tight.status is Status.CONVERGED
    sizes = [np.linalg.slogdet(x.H.T @ x.H + 0.1 * np.eye(3))[1] for x in (plain, tight)]
    assert sizes[1] < sizes[0]


def test_further_runs_start_elsewhere():
    V, _, _ = mixtures(noise=0.01)
    plan = choose(Request.of(as_matrix(V), 3, regularize_W=Simplex(), n_init=2))
    assert plan.restart != plan.start
    assert "vertices" in plan.explanation.start
