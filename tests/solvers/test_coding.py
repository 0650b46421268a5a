"""Coefficients are exact: scipy's active-set method, row by row, is the slow twin."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import torch

from factormer.data.intake import as_matrix
from factormer.kernels import active_set
from factormer.solvers.coding import Coder

rng = np.random.default_rng(0)
H = rng.random((30, 8))
X = np.maximum(rng.standard_normal((60, 30)), 0)
X[3] = 0


def literally(V: np.ndarray, H: np.ndarray, l1: float = 0.0, l2: float = 0.0) -> np.ndarray:
    """scipy's answer for each row; penalties become more equations of the same kind.

    ½‖Hw − v‖² + l1·1ᵀw + ½·l2·‖w‖² is ½‖Aw − b‖² for AᵀA = HᵀH + l2·I and Aᵀb = Hᵀv − l1.
    """
    A = np.linalg.cholesky(H.T @ H + l2 * np.eye(H.shape[1])).T
    return np.stack([scipy.optimize.nnls(A, np.linalg.solve(A.T, H.T @ v - l1))[0] for v in V])


def coefficients(V, H, l1: float = 0.0, l2: float = 0.0) -> np.ndarray:
    return Coder.of(torch.as_tensor(H), l1, l2)(as_matrix(V)).numpy()


@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.0), (0.7, 0.0), (0.0, 2.0), (0.3, 0.5)])
def test_rows_are_solved_exactly(l1, l2):
    np.testing.assert_allclose(coefficients(X, H, l1, l2), literally(X, H, l1, l2), atol=1e-11)


@pytest.mark.parametrize("r", [1, 2, 25, 30])
def test_number_of_components_does_not_matter(r):
    H = np.random.default_rng(r).random((30, r))
    np.testing.assert_allclose(coefficients(X, H), literally(X, H), atol=1e-9)


def test_nearly_equal_components_are_told_apart():
    close = 1 + 1e-4 * H
    expected = np.stack([scipy.optimize.nnls(close, v)[0] for v in X])
    np.testing.assert_allclose(coefficients(X, close), expected, atol=1e-8)


@pytest.mark.parametrize("case", ["equal", "zero", "more than features"])
def test_dependent_components_give_one_of_the_best_answers(case):
    D = rng.random((30, 45)) if case == "more than features" else H.copy()
    if case == "equal":
        D[:, 3], D[:, 6] = D[:, 2], 2 * D[:, 1]
    if case == "zero":
        D[:, [0, 5]] = 0
    W = coefficients(X, D)
    assert (W >= 0).all()
    best = [scipy.optimize.nnls(D, v)[1] for v in X]
    np.testing.assert_allclose(np.linalg.norm(X - W @ D.T, axis=1), best, atol=1e-9)


def test_no_row_of_a_hard_case_is_left_without_proof():
    D = rng.random((60, 40))
    V = rng.exponential(size=(50, 40)) * (rng.random((50, 40)) > 0.5) @ D.T
    Q, R = np.linalg.qr(D / np.linalg.norm(D, axis=0))
    W, Rt = rng.random((50, 40)), np.ascontiguousarray(R.T)
    guess = rng.random((50, 40))
    given = (Rt, Rt @ R, np.ascontiguousarray(V @ Q), np.zeros(40), W, guess)
    assert active_set.solve_rows(*given, 0, 5, 1e-13, *active_set.Room.of(40, 40)) == 0
    np.testing.assert_allclose(W[:5] / np.linalg.norm(D, axis=0), literally(V[:5], D), atol=1e-9)


def test_loops_are_the_same_uncompiled(monkeypatch):
    compiled = coefficients(X[:8], H)
    monkeypatch.setattr("factormer.solvers.coding.exact_rows", lambda *wanted: None)
    np.testing.assert_allclose(coefficients(X[:8], H), compiled, atol=1e-13)


@pytest.mark.parametrize("store", [scipy.sparse.csr_array, scipy.sparse.csc_matrix])
def test_sparse_rows_are_solved_as_dense_ones(store):
    np.testing.assert_allclose(coefficients(store(X), H), coefficients(X, H), atol=1e-12)


def test_answers_do_not_depend_on_the_batch(monkeypatch):
    together = coefficients(X, H)
    monkeypatch.setattr("factormer.solvers.coding._BLOCK", 7)
    np.testing.assert_allclose(coefficients(X, H), together, atol=1e-13)
    apart = np.concatenate([coefficients(row[None], H) for row in X])
    np.testing.assert_allclose(apart, together, atol=1e-13)


def test_single_precision_is_solved_in_double():
    W = coefficients(X.astype(np.float32), H.astype(np.float32))
    assert W.dtype == np.float32
    expected = coefficients(X.astype(np.float32).astype(float), H.astype(np.float32).astype(float))
    np.testing.assert_allclose(W, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("unit", [1e-150, 1e-30, 1e30, 1e150])
def test_unit_of_the_data_does_not_matter(unit):
    np.testing.assert_allclose(coefficients(unit * X, H) / unit, coefficients(X, H), atol=1e-11)


def test_row_of_zeros_has_no_coefficients():
    assert not coefficients(X, H)[3].any()
    assert not coefficients(X, H, 0.1, 0.1)[3].any()


def ill_conditioned(case: int) -> tuple[np.ndarray, np.ndarray]:
    """Components that depend on each other, nearly, and rows that they fit exactly or not."""
    rng = np.random.default_rng(case)
    n, r = rng.integers(2, 40, size=2)
    H = rng.random((n, r))
    match case % 6:
        case 0:
            H = 1 + 10.0 ** -rng.integers(1, 12) * H
        case 1:
            H = rng.random((n, 3)) @ rng.random((3, r))
        case 2:
            half = r - r // 2
            H[:, r // 2 :] = H[:, :half] * (1 + 10.0 ** -rng.integers(3, 16) * H[:, :half])
        case 3:
            H = H * 10.0 ** rng.integers(-8, 8, size=r)
        case 4:
            H = np.exp(3 * rng.standard_normal((n, 2))) @ rng.random((2, r)) + 1e-9 * H
        case 5:
            H = H * (rng.random((n, r)) < 0.2)
    if case % 2:
        return (rng.random((8, r)) * (rng.random((8, r)) < 0.5)) @ H.T, H
    return rng.random((8, n)), H


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_nearly_dependent_components_fit_as_well_as_scipys(first):
    for case in range(first, first + 100):
        V, H = ill_conditioned(case)
        W = coefficients(V, H)
        assert (W >= 0).all()
        size = np.linalg.norm(V, axis=1)
        theirs = np.stack([scipy.optimize.nnls(H, v, maxiter=1000)[0] for v in V])
        best = np.linalg.norm(V - theirs @ H.T, axis=1)  # what they report can be another
        assert (np.linalg.norm(V - W @ H.T, axis=1) <= best + 1e-7 * size).all(), case


def test_row_keeps_its_coefficients_unless_others_fit_as_well():
    for case in range(60):
        V, H = ill_conditioned(case)
        before = np.random.default_rng(case).random((len(V), H.shape[1]))
        W = Coder.of(torch.as_tensor(H))(as_matrix(V), torch.as_tensor(before)).numpy()
        new, old = (np.linalg.norm(V - F @ H.T, axis=1) for F in (W, before))
        assert (new <= old + 1e-12 * np.linalg.norm(V, axis=1)).all(), case


def test_rows_that_time_does_not_reach_stay_as_they_were():
    before, coder = torch.rand(len(X), 8, dtype=torch.float64), Coder.of(torch.as_tensor(H))
    late = coder(as_matrix(X), before, until=0.0)
    torch.testing.assert_close(late, before)
    guess = coder(as_matrix(X), until=0.0).numpy()
    error, least = (np.linalg.norm(X - F @ H.T) for F in (guess, coefficients(X, H)))
    assert (guess >= 0).all()
    assert (1 - 1e-12) * least <= error <= 1.1 * least


def test_plain_loops_are_the_same_for_dependent_components(monkeypatch):
    cases = [ill_conditioned(case) for case in range(6)]
    fast = [V[:2] - coefficients(V[:2], H) @ H.T for V, H in cases]
    monkeypatch.setattr("factormer.solvers.coding.exact_rows", lambda *wanted: None)
    for (V, H), rest in zip(cases, fast, strict=True):
        np.testing.assert_allclose(V[:2] - coefficients(V[:2], H) @ H.T, rest, atol=1e-6)
