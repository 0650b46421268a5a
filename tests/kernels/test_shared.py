"""Problems side by side against the iterations of HER, one problem after another."""

from itertools import islice
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from factormer.accelerate.her import HER
from factormer.accelerate.lines import Lines, side_by_side
from factormer.data import Sparse
from factormer.data.factors import Factors
from factormer.data.intake import as_matrix
from factormer.problem.problem import Problem
from factormer.solvers.loop import iterated
from factormer.starts import Random
from tests.steps import steps


def data(kind: str, m: int = 30, n: int = 21) -> np.ndarray:
    rng = np.random.default_rng(3)
    V = rng.exponential(size=(m, 4)) @ rng.exponential(size=(4, n)) + 3 * rng.random((m, n))
    return V if kind == "dense" else V * (rng.random((m, n)) < 0.3)


def as_kind(V: np.ndarray, kind: str) -> Any:
    return as_matrix(V if kind == "dense" else scipy.sparse.csr_array(V))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_iterations_are_those_of_each_alone(kind, dtype, rtol):
    V, r, n_iter = as_kind(data(kind), kind), 4, 8
    assert isinstance(V, Sparse) == (kind == "sparse")
    lines = Lines(V, dtype, r, HER(), 3)
    starts = [np.random.default_rng(k).random((r, sum(V.shape))) for k in range(3)]
    for x in starts:
        lines.enter(x)
    errors = np.array([lines.iterate()[0] for _ in range(n_iter)])
    for k, x in enumerate(starts):
        W, H = (torch.from_numpy(F.T.copy()) for F in np.split(x, [V.shape[0]], axis=1))
        problem = Problem(V, r)
        states = islice(steps(problem, HER(), Factors(W, H)), 1, n_iter + 1)
        alone = [float(state.sq_error(problem)) for state in states]
        np.testing.assert_allclose(errors[:, k], alone, rtol=rtol)


@torch.no_grad()
@pytest.mark.parametrize("made", ["noisy", "exact"])
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("count", [1, 3, 4])
def test_fits_from_several_starts_are_those_of_each_alone(made, compiled, count, monkeypatch):
    """Also where errors are too small for iterations side by side, and without compiled ones."""
    V = data("dense") if made == "noisy" else np.outer(np.arange(1.0, 31), np.arange(1.0, 22))
    problem = Problem(as_kind(V, "dense"), 2)
    starts = [Random()(problem, torch.Generator().manual_seed(k)) for k in range(count)]
    alone = [iterated(problem, HER(), x, 12) for x in starts]
    if not compiled:
        monkeypatch.setattr("factormer.kernels.shared_products", lambda *_: None)
    fits = side_by_side(problem, HER(), starts, 12)
    for fit, state in zip(fits, alone, strict=True):
        torch.testing.assert_close(fit.factors.W, state.factors.W, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(fit.factors.H, state.factors.H, rtol=1e-6, atol=1e-8)
        error = float(state.sq_error(problem))
        assert fit.error == pytest.approx(error, rel=1e-6, abs=1e-9 * float(problem.V.sq_norm()))


def test_the_last_takes_the_place_of_one_that_leaves():
    V, r = as_kind(data("dense"), "dense"), 3
    lines = Lines(V, torch.float64, r, HER(), 3)
    points = [k * np.ones((r, sum(V.shape))) for k in (1.0, 2.0, 3.0)]
    for x in points:
        lines.enter(x)
    assert lines.is_full
    np.testing.assert_array_equal(lines.leave(0), points[0])
    assert len(lines) == 2
    np.testing.assert_array_equal(lines.leave(0), points[2])
    np.testing.assert_array_equal(lines.leave(0), points[1])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_look_sees_error_and_gradient(dtype):
    V, r = as_kind(data("dense"), "dense"), 4
    lines = Lines(V, dtype, r, HER(), 2)
    for k in range(2):
        lines.enter(np.random.default_rng(k).random((r, sum(V.shape))).round(1))  # some are 0
    lines.iterate()
    errors, slopes, norms = lines.look(1)
    (x,) = [lines.leave(1)]
    point = Factors(*(torch.from_numpy(F.T.copy()) for F in np.split(x, [V.shape[0]], axis=1)))
    problem = Problem(V, r)
    assert errors[0] == pytest.approx(float(problem.sq_error(point)), rel=1e-4)
    assert slopes[0] == pytest.approx(float(problem.stationarity(point)), rel=1e-4)
    norm = float(V.sq_norm()) ** 0.5 * sum(float(F.norm()) for F in point)
    assert norms[0] == pytest.approx(norm, rel=1e-4)
