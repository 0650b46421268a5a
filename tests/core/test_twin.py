"""The core agrees with its slow twin in NumPy, with scipy and with scikit-learn."""

from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from sklearn.decomposition import non_negative_factorization

from tests.core import reference
from tests.core.lanes import as_array, core, kinds, one, planted, rmse, under

KINDS = kinds()
PLAIN = {"order": False, "scale": "none", "finish": "none", "tol": 0, "max_sweeps": 1}


@pytest.fixture(params=core.isas(), autouse=True)
def isa(request):
    with under(request.param):
        yield request.param


@pytest.mark.parametrize("kind", KINDS)
def test_iterations_agree_with_the_twin(kind):
    V = as_array(KINDS[kind])
    W, H = reference.random_start(V, 5, 7)
    twin = reference.Twin(V, W, H).run(30)
    found = one(KINDS[kind], 5, 7, max_iter=30, **PLAIN)
    np.testing.assert_allclose(found.errors, twin.errors, rtol=1e-7)
    np.testing.assert_allclose(found.W, twin.W, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(found.H, twin.H, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "terms",
    [
        {"l1": (0.3, 0.0)},
        {"l1": (0.1, 0.2), "l2": (0.5, 0.0)},
        {"l2": (0.0, 2.0)},
        {"l1": (0.05, 0.4), "l2": (0.2, 0.3)},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["by rows", "sparse", "float32"])
def test_penalties_agree_with_the_twin(kind, terms):
    V = as_array(KINDS[kind])
    W, H = reference.random_start(V, 4, 1)
    twin = reference.Twin(V, W, H, **terms).run(25)
    found = one(KINDS[kind], 4, 1, max_iter=25, **terms, **PLAIN)
    np.testing.assert_allclose(found.errors, twin.errors, rtol=1e-7)
    np.testing.assert_allclose(found.W, twin.W, rtol=1e-5, atol=1e-6)
    assert found.error == pytest.approx(twin.objective(found.W, found.H), rel=1e-9)


def test_fixed_components_agree_with_the_twin_and_stay():
    V = planted(40, 30, 4)
    W, H = reference.random_start(V, 4, 2)
    fixed = ([1], [0, 3])
    twin = reference.Twin(V, W, H, fixed=fixed).run(25)
    rules = {**PLAIN, "finish": "sweeps", "order": True, "scale": "balanced"}
    found = one(V, 4, start=(W, H), fixed=fixed, max_iter=25, **rules)
    np.testing.assert_allclose(found.errors, twin.errors, rtol=1e-8)
    np.testing.assert_array_equal(found.W[:, 1], W[:, 1])
    np.testing.assert_array_equal(found.H[:, [0, 3]], H[:, [0, 3]])


@pytest.mark.parametrize("kind", ["dense", "sparse", "float32"])
def test_symmetric_factorization_agrees_with_the_twin(kind):
    B = planted(30, 4, 4)
    V = B @ B.T
    W, H = reference.random_start(V, 4, 3)
    twin = reference.Twin(V, W, H, pull=0.2 * V.mean() * len(V)).run(30)
    as_given = {"dense": V, "sparse": sp.csr_matrix(V), "float32": V.astype(np.float32)}[kind]
    found = one(as_given, 4, 3, max_iter=30, pull=0.2, **PLAIN)
    np.testing.assert_allclose(found.errors, twin.errors, rtol=1e-5)
    np.testing.assert_array_equal(found.W, found.H)
    np.testing.assert_allclose(found.W, (twin.W + twin.H) / 2, rtol=1e-3, atol=1e-4)
    assert found.error == pytest.approx(rmse(V, found), rel=1e-5)


def test_a_stronger_pull_keeps_factors_together_where_two_of_them_would_fit_better():
    V = np.random.default_rng(5).exponential(size=(12, 12)) ** 3
    V += V.T  # which W Hᵀ fits better than any H Hᵀ
    found = one(V, 4, 3, max_iter=60, pull=0.2, **PLAIN)
    assert (np.diff(found.errors) <= 0).all()
    assert found.errors[-1] == pytest.approx(rmse(V, found), rel=1e-12)
    twin = reference.Twin(V, *reference.random_start(V, 4, 3), pull=0.2 * V.mean() * len(V))
    np.testing.assert_allclose(found.errors, twin.run(60).errors, rtol=1e-6)
    assert twin.pull > 0.2 * V.mean() * len(V)


@pytest.mark.parametrize("kind", KINDS)
def test_errors_returned_are_those_of_the_factors(kind):
    for precision in ("float64", "mixed", "float32"):
        found = one(KINDS[kind], 5, max_iter=40, precision=precision)
        loose = 1e-6 if precision == "float64" else 1e-4
        assert found.error == pytest.approx(rmse(KINDS[kind], found), rel=loose)
        assert (found.W >= 0).all()
        assert (found.H >= 0).all()
        rounding = 1e-6 if precision == "float64" else 1e-5  # what a plain iteration may lose
        assert (np.diff(found.errors) <= rounding * found.errors[0]).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("terms", [{}, {"l1": (0.05, 0.0)}, {"l2": (0.3, 0.0)}], ids=str)
def test_exact_coding_solves_every_row_as_scipy_does(kind, terms):
    V, r = as_array(KINDS[kind]), 6
    H = np.random.default_rng(3).random((V.shape[1], r))
    start = (np.zeros((len(V), r)), H)
    found = one(
        KINDS[kind], r, start=start, max_iter=0, finish="exact", order=False, scale="none", **terms
    )
    np.testing.assert_array_equal(found.H, H)
    (l1, _), (l2, _) = terms.get("l1", (0, 0)), terms.get("l2", (0, 0))
    G = H.T @ H + l2 * np.eye(r)
    L = np.linalg.cholesky(G)
    for w, v in zip(found.W, V, strict=True):
        target = np.linalg.solve(L, H.T @ v - l1)
        expected, _ = scipy.optimize.nnls(L.T, target)
        np.testing.assert_allclose(w, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("r", [1, 3, 65, 90])
def test_exact_coding_has_no_limit_of_rank(r):
    rng = np.random.default_rng(r)
    H = rng.random((120, r)) * (rng.random((120, r)) < 0.3) + 1e-3
    V = rng.random((9, r)) @ H.T + rng.random((9, 120))
    found = one(
        V, r, start=(np.zeros((9, r)), H), max_iter=0, finish="exact", order=False, scale="none"
    )
    for w, v in zip(found.W, V, strict=True):
        np.testing.assert_allclose(w, scipy.optimize.nnls(H, v)[0], rtol=1e-6, atol=1e-8)


def test_exact_coding_is_never_worse_where_components_depend_on_each_other():
    rng = np.random.default_rng(0)
    H = rng.random((40, 5))
    H = np.concatenate([H, H + 1e-9 * rng.random((40, 5)), np.zeros((40, 2))], axis=1)
    V = rng.random((25, 40))
    rules = {"max_iter": 0, "order": False, "scale": "none"}
    start = (np.zeros((25, 12)), H)
    exact, swept = (one(V, 12, start=start, finish=f, **rules) for f in ("exact", "sweeps"))
    best = np.sqrt(np.mean([scipy.optimize.nnls(H, v)[1] ** 2 / 40 for v in V]))
    assert best * (1 - 1e-9) <= exact.error <= best * (1 + 1e-6)
    assert exact.error <= swept.error * (1 + 1e-12)


@pytest.mark.parametrize("kind", ["by rows", "sparse", "float32", "low rank"])
def test_the_error_is_scikit_learns_or_lower(kind):
    V = np.maximum(as_array(KINDS[kind]), 0)
    solve: Any = non_negative_factorization
    W, H, _ = solve(V, n_components=5, init="random", tol=1e-6, max_iter=5000, random_state=0)
    theirs = np.sqrt(np.mean((V - W @ H) ** 2))
    ours = min(one(KINDS[kind], 5, seed, max_iter=2000, tol=1e-6).error for seed in range(5))
    assert ours <= theirs * (1 + 1e-3)


def test_components_come_in_order_and_to_scale():
    V = planted(60, 50, 4)
    plain = one(V, 4, max_iter=30, order=False, scale="none")
    places = reference.order_of(plain.W, plain.H)
    W, H = reference.balanced(plain.W[:, places], plain.H[:, places])
    balanced, sums = (one(V, 4, max_iter=30, scale=s) for s in ("balanced", "sum"))
    np.testing.assert_allclose(balanced.W, W, rtol=1e-12)
    np.testing.assert_allclose(balanced.H, H, rtol=1e-12)
    np.testing.assert_allclose(sums.H.sum(axis=0), 1)
    np.testing.assert_allclose(sums.W @ sums.H.T, W @ H.T, rtol=1e-12)
