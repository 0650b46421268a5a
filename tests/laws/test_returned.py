"""What is returned is never worse than the best iterate, and what is reported is true."""

import time
import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

import factormer
from factormer import NMF, Status
from factormer.kernels.core import core
from factormer.penalties import L1, L2, Bounds, Fixed, Simplex, Smooth

LOSSES = ["frobenius", "kullback-leibler", "itakura-saito", 1.5]
DEMANDS = {"none": None, "L1": L1(0.1), "L2": L2(0.1), "simplex": Simplex(), "smooth": Smooth(0.1)}
DEMANDS |= {"bounds": Bounds(0.0, 0.7)}


def hard(seed: int) -> np.ndarray:
    """Data for nearly dependent components: of low rank, with equal columns, one huge entry."""
    rng = np.random.default_rng(seed)
    m, n = rng.integers(3, 30, size=2)
    match seed % 4:
        case 0:
            return rng.random((m, 2)) @ rng.random((2, n))
        case 1:
            return np.repeat(rng.random((m, n)), 2, axis=1)
        case 2:
            V = rng.random((m, n))
            V[0, 0] = 1e5
            return V
        case _:
            return rng.exponential(size=(m, n)) ** 3 + 1e-6


def divergence(V: np.ndarray, Y: np.ndarray, loss: str | float) -> float:
    beta = {"frobenius": 2, "kullback-leibler": 1, "itakura-saito": 0}.get(str(loss), loss)
    if beta == 1:
        logs = np.where(V > 0, V * np.log(np.where(V > 0, V, 1) / Y), 0)
        return float((logs - V + Y).sum())
    if beta == 0:
        return float((V / Y - np.log(V / Y) - 1).sum())
    b = float(beta)
    return float(((V**b + (b - 1) * Y**b - b * V * Y ** (b - 1)) / (b * (b - 1))).sum())


def penalty(term: object, W: np.ndarray) -> float:
    match term:
        case L1(weight=c):
            return c * W.sum()
        case L2(weight=c):
            return c / 2 * (W**2).sum()
        case Smooth(weight=c):
            return c / 2 * (np.diff(W, axis=0) ** 2).sum()
    return 0.0


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("loss", "demand"),
    [("frobenius", demand) for demand in DEMANDS]
    + [(loss, demand) for loss in LOSSES[1:] for demand in ("none", "L1", "L2")]
    + [
        pytest.param(loss, demand, marks=pytest.mark.slow)
        for loss in LOSSES[1:]
        for demand in ("simplex", "smooth", "bounds")
    ],
)
@settings(max_examples=2)  # of each of fifteen; `make fuzz` claims the same of many more
@given(seed=st.integers(0, 10_000))
def test_last_steps_never_do_worse_than_the_best_iterate(loss, demand, seed):
    V, term = hard(seed), DEMANDS[demand]
    errors: list[float] = []
    model = NMF(
        min(6, *V.shape), beta_loss=loss, solver="auto", regularize_W=term, tol=1e-3, max_iter=30,
        random_state=seed % 100, callback=lambda row: errors.append(float(row.rmse)),
    )  # fmt: skip
    W = model.fit_transform(V)
    H = model.components_
    misfit = divergence(V, W @ H, loss)
    objective = misfit + penalty(term, W)
    size = divergence(V, np.full_like(V, V.mean()), loss)
    noise = 1e-13 * max(size, (V**2).sum() if loss == "frobenius" else size)
    single = 1e-6 * (V**2).sum() if loss == "frobenius" else 0  # iterations in float32 may round
    assert objective <= min(errors) ** 2 * V.size / 2 * (1 + 1e-9) + noise + single
    assert (W >= 0).all()
    assert np.isfinite(W).all()
    assert model.result_.loss == pytest.approx(objective, rel=2e-6, abs=noise)
    rmse, digits = np.sqrt(2 * max(misfit, 0) / V.size), np.sqrt(2 * noise / V.size)
    assert model.result_.rmse == pytest.approx(rmse, rel=1e-6, abs=digits)


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("unit", [1e-300, 1e-170, 1e-20, 1.0, 1e20, 1e160, 1e300])
@pytest.mark.parametrize("call", [factormer.factorize, lambda V, r: NMF(r, random_state=0).fit(V)])
def test_every_number_that_is_reported_is_true_in_any_unit(call, unit, as_sparse, rng):
    A = np.random.default_rng(0).random((20, 12))
    answer = call(scipy.sparse.csr_array(unit * A) if as_sparse else unit * A, 3)
    result = getattr(answer, "result_", answer)
    fit = (result.W / np.sqrt(unit)) @ (result.H / np.sqrt(unit)).T
    rmse = np.sqrt(np.mean((A - fit) ** 2))
    assert result.rmse / unit == pytest.approx(rmse, rel=1e-9)
    assert result.trace.rmse.min() / unit == pytest.approx(rmse, rel=1e-2)
    assert float(result.trace.last.rmse) == pytest.approx(result.trace.rmse[-1], rel=1e-12)
    if answer is not result:
        norm = rmse * np.sqrt(A.size)
        assert answer.reconstruction_err_ / unit == pytest.approx(norm, rel=1e-9)
    if 1e-150 < unit < 1e150:
        assert result.loss / unit / unit == pytest.approx(rmse**2 * A.size / 2, rel=1e-9)
    else:
        with pytest.warns(RuntimeWarning, match="beyond float64"):
            assert result.loss in (0.0, np.inf)


@cache
def digits() -> Any:
    return load_digits(return_X_y=True)[0][:500]


@cache
def digits_at(rank: int) -> Any:
    return factormer.factorize(digits(), rank)


@pytest.mark.parametrize("rank", [60, 64, "auto"])
def test_more_components_than_the_data_has_end_well(rank):
    X = digits()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        end = NMF(rank, random_state=0).fit(X).reconstruction_err_
    plain = digits_at(64 if rank == "auto" else rank)
    assert end <= np.sqrt(2 * plain.loss) * (1 + 1e-6)
    assert end < 0.02 * np.linalg.norm(X)


def test_rank_above_the_true_one_keeps_an_exact_fit():
    g = np.random.default_rng(135)
    V = g.random((30, 2)) @ g.random((2, 20))
    model = NMF(4, random_state=0).fit(V)
    assert model.reconstruction_err_ < 1e-5 * np.linalg.norm(V)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_time_limit_reaches_the_last_step_and_transform():
    rng = np.random.default_rng(0)
    X = rng.random((6000, 120))
    NMF(3).fit(X[:50]).transform(X[:50])  # compiled before the clock runs
    model = NMF(100, time_limit=0.3, tol=0.5, random_state=0)
    begun = time.perf_counter()
    model.fit(X)
    fitted = time.perf_counter()
    model.transform(X)
    done = time.perf_counter()
    assert fitted - begun < 10  # generous: nothing goes on for minutes
    assert done - fitted < 10


@pytest.mark.parametrize("seed", range(4))
def test_transform_under_sums_fits_as_well_as_the_fit(seed):
    X = np.random.default_rng(seed).random((6, 20))
    X[2, 3] = 1e5
    model = NMF(3, regularize_W=Simplex(), random_state=0)
    W = model.fit_transform(X)
    again = model.transform(X)
    errors = [np.linalg.norm(X - F @ model.components_) for F in (W, again)]
    assert errors[1] <= errors[0] * (1 + 1e-9)
    np.testing.assert_allclose(again.sum(axis=1), 1, rtol=1e-12)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("unit", "dtype", "loss"),
    [
        (1e20, "float32", "frobenius"),
        (1e30, "float32", "kullback-leibler"),
        (1e200, "float64", "frobenius"),
        (1e-200, "float64", "frobenius"),
    ],
)
def test_sums_hold_whatever_the_unit_of_the_data(unit, dtype, loss):
    X = (np.random.default_rng(0).random((6, 20)) * unit).astype(dtype)
    model = NMF(3, regularize_W=Simplex(), beta_loss=loss, random_state=0)
    np.testing.assert_allclose(model.fit_transform(X).sum(axis=1), 1, rtol=1e-4)
    A = NMF(3, regularize_W=Simplex(), beta_loss=loss, random_state=0)
    plain = A.fit(X.astype(float) / unit).reconstruction_err_
    beta = 2 if loss == "frobenius" else 1
    assert model.reconstruction_err_ / unit ** (beta / 2) == pytest.approx(plain, rel=0.02)


@pytest.mark.parametrize("scale", [1e-100, 1e-10, 1e10, 1e100, 1e150])
def test_start_out_of_proportion_is_iterated(scale):
    V, g = np.random.default_rng(0).random((20, 15)), np.random.default_rng(1)
    W, H = g.random((20, 3)), g.random((15, 3))
    plain = factormer.factorize(V, 3, init="custom", W=W, H=H)
    result = factormer.factorize(V, 3, init="custom", W=scale * W, H=scale * H)
    assert result.n_iter > 1
    assert result.status is Status.CONVERGED
    assert result.rmse == pytest.approx(plain.rmse, rel=0.02)


def test_tolerance_below_the_precision_ends():
    X = np.random.default_rng(0).poisson(3, size=(40, 30)).astype(np.float32)
    model = NMF(3, beta_loss="kullback-leibler", tol=1e-12, max_iter=5000, random_state=0).fit(X)
    assert model.status_ is Status.CONVERGED
    assert model.n_iter_ < (2000 if core() is not None else model.max_iter)  # Newton, or "mu"


def test_iterations_of_coding_are_told():
    X, H = np.random.default_rng(0).random((10, 8)), np.random.default_rng(1).random((3, 8))
    for loss in ("frobenius", "kullback-leibler"):
        n_iter = factormer.non_negative_factorization(
            X, H=H, n_components=3, update_H=False, beta_loss=loss
        )[2]
        assert n_iter >= 1


def test_known_columns_of_w_stay():
    X, known = np.random.default_rng(0).random((9, 7)), np.full((9, 1), 0.5)
    fixed = Fixed(known, [True, False, False])
    model = NMF(3, regularize_W=fixed, random_state=0)
    W = model.fit_transform(X)
    np.testing.assert_allclose(W[:, :1], known, rtol=1e-12)
    np.testing.assert_allclose(model.transform(X)[:, :1], known, rtol=1e-12)
    start = (np.random.default_rng(1).random((9, 3)), np.random.default_rng(2).random((7, 3)))
    result = factormer.factorize(X, 3, init="custom", W=start[0], H=start[1], regularize_W=fixed)
    np.testing.assert_allclose(result.W[:, :1], known, rtol=1e-12)
