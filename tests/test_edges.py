"""Odd data through the front door: a correct finite factorisation or a sentence, never a warning.

Each solver meets each odd matrix, dense and sparse, and so does each start, and each solver each
start; the slow ones are all that is left of solvers × starts × matrices.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from factormer import NMF, factorize
from factormer.run.registry import SOLVERS as KINDS
from factormer.run.registry import STARTS

rng = np.random.default_rng(0)
V = rng.exponential(size=(14, 3)) @ rng.exponential(size=(3, 11)) * (rng.random((14, 11)) > 0.3)
EMPTY_LINES = V.copy()
EMPTY_LINES[[0, 5, 13]], EMPTY_LINES[:, [0, 7]] = 0, 0
SINGLE_ENTRY = np.zeros((9, 8))
SINGLE_ENTRY[3, 2] = 5.0

ODD: dict[str, np.ndarray] = {
    "empty rows and columns": EMPTY_LINES,
    "all zero": np.zeros((9, 8)),
    "constant": np.full((9, 8), 3.0),
    "single entry": SINGLE_ENTRY,
    "identity": np.eye(6),
    "row": V[:1],
    "column": V[:, 1:2],
    "number": np.array([[7.0]]),
    "zero": np.array([[0.0]]),
    "1e-300": 1e-300 * V,
    "1e300": 1e300 * V,
    "of all sizes": V * 10.0 ** rng.integers(-12, 12, V.shape),
    "huge in single": (1e30 * V).astype(np.float32),
    "tiny in single": (1e-30 * V).astype(np.float32),
}
FORMS: dict[str, np.ndarray] = {
    "plain": V,
    "counts": (3 * V).astype(np.int64),
    "bytes": (3 * V).astype(np.uint8),
    "booleans": V > 1,
    "single precision": V.astype(np.float32),
    "Fortran": np.asfortranarray(V),
    "view": np.repeat(np.repeat(V, 2, axis=0), 3, axis=1)[::2, ::3],
    "reversed": V[::-1, ::-1],
}
ALL = ODD | FORMS
STORES: dict[str, Callable[[np.ndarray], Any]] = {
    "dense": lambda A: A,
    "sparse": scipy.sparse.csr_array,
}
RANKS = (1, 3, 12)  # each start has another one; the last is at least min(m, n)
each_matrix = pytest.mark.parametrize("matrix", ALL.values(), ids=ALL.keys())
each_store = pytest.mark.parametrize("store", STORES.values(), ids=STORES.keys())


SOLVERS = [kind.name for kind in KINDS if {"free", "least squares"} <= set(kind.needs)]


def assert_correct(W: np.ndarray, H: np.ndarray, error: Any, matrix: np.ndarray) -> None:
    """Feasible, finite, in the right precision, with the error that is told, and better than 0."""
    kind = np.float32 if matrix.dtype == np.float32 else np.float64
    for F in (W, H):
        assert F.dtype == kind
        assert np.isfinite(F).all()
        assert (F >= 0).all()
    unit = float(matrix.max()) or 1.0
    target = matrix.astype(float) / unit
    found = np.sqrt(np.mean((W.astype(float) / unit @ H.astype(float).T - target) ** 2))
    rounding = 1e-4 if kind is np.float32 else 1e-7
    assert error / unit == pytest.approx(found, rel=1e-3, abs=rounding)
    assert found <= np.sqrt(np.mean(target**2)) + rounding


@each_store
@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("part", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2))])
def test_every_solver_and_start_copes(solver, name, store, part):
    matrix, first = ODD[name], list(SOLVERS).index(solver)
    (m, n), turn = matrix.shape, first + list(ODD).index(name) + (store is STORES["sparse"]) + part
    for k, init in list(enumerate(STARTS, first))[turn % 3 :: 3]:
        rank = RANKS[(k + turn) % len(RANKS)]
        result = factorize(store(matrix), rank, solver=solver, init=init, max_iter=3, tol=0.0)
        assert (result.W.shape, result.H.shape) == ((m, rank), (n, rank))
        assert_correct(result.W, result.H, result.rmse, matrix)
        rounding = np.finfo(matrix.dtype).eps * (matrix.max() or 1.0)
        if store is STORES["sparse"]:  # whose errors in a trace come from products
            rounding = np.sqrt(np.finfo(float).eps) * 64 * (matrix.max() or 1.0)
        assert result.rmse <= result.trace.rmse[0] * (1 + 1e-6) + rounding


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@each_store
@each_matrix
def test_estimator_copes(matrix, store):
    model = NMF(2, max_iter=20, random_state=0)
    W = model.fit_transform(store(matrix))
    error = model.reconstruction_err_ / np.sqrt(matrix.size)
    assert_correct(W, model.components_.T, error, matrix)
    assert model.transform(store(matrix)).shape == W.shape


LARGE = rng.exponential(size=(260, 3)) @ rng.exponential(size=(3, 210))
LARGE_EMPTY_LINES = LARGE.copy()
LARGE_EMPTY_LINES[::3], LARGE_EMPTY_LINES[:, ::4] = 0, 0
LARGE_ODD: dict[str, np.ndarray] = {
    "exact": LARGE,
    "noisy": LARGE + rng.random(LARGE.shape),
    "empty rows and columns": LARGE_EMPTY_LINES,
    "all zero": 0 * LARGE,
    "constant": np.full_like(LARGE, 3.0),
    "booleans": LARGE > 1,
    "single precision": LARGE.astype(np.float32),
    "1e-300": 1e-300 * LARGE,
    "1e300": 1e300 * LARGE,
}


@each_store
@pytest.mark.parametrize("matrix", LARGE_ODD.values(), ids=LARGE_ODD.keys())
def test_matrix_that_is_sketched_or_rounded_first_is_coped_with(matrix, store):
    for rank, max_iter in ((2, 1), (45, 12)):
        result = factorize(store(matrix), rank, max_iter=max_iter)
        assert_correct(result.W, result.H, result.rmse, matrix)
        assert result.trace.iteration.tolist() == list(range(result.n_iter + 1))
        assert result.n_iter <= max_iter
