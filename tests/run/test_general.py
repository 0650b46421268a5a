"""factorize() beyond least squares: independent answers, unknown entries, sentences for misuse."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.decomposition import non_negative_factorization

from factormer import factorize, factorize_many
from factormer.penalties import (
    L1,
    L2,
    Bounds,
    Fixed,
    Free,
    Group,
    Orthogonal,
    Simplex,
    Smooth,
)

KL = "kullback-leibler"


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def low_rank(random: np.random.Generator, m: int = 30, n: int = 20, r: int = 3) -> np.ndarray:
    return random.exponential(size=(m, r)) @ random.exponential(size=(r, n))


@pytest.mark.parametrize("loss", [KL, "itakura-saito", 1.5, 0.5])
@pytest.mark.parametrize("sparse", [False, True])
def test_no_worse_than_scikit_learn(loss, sparse, random):
    V = random.poisson(low_rank(random)).astype(float)
    if loss == "itakura-saito":
        if sparse:
            pytest.skip("forbids zeros")
        V += 0.1
    data = scipy.sparse.csr_array(V) if sparse else V
    ours = factorize(data, 3, loss=loss, max_iter=150, n_init=3)
    from sklearn.decomposition._nmf import _beta_divergence

    rank: Any = 3
    W, H, _ = non_negative_factorization(
        V, n_components=rank, init="random", solver="mu", beta_loss=loss, max_iter=300, tol=0,
        random_state=0,
    )  # fmt: skip
    theirs = _beta_divergence(V, W, H, loss)
    assert ours.loss <= 1.02 * theirs
    np.testing.assert_allclose(ours.loss, _beta_divergence(V, ours.W, ours.H.T, loss), rtol=1e-6)
    np.testing.assert_allclose(ours.trace.loss.min(), ours.loss, rtol=1e-5)


def test_stops_when_stationary(random):
    V = random.poisson(5 * low_rank(random)).astype(float)
    result = factorize(V, 3, loss=KL, max_iter=3000, tol=1e-5)
    assert result.status.name == "CONVERGED"
    assert (np.diff(result.trace.loss) <= 1e-9 * result.loss).all()


def test_unit_of_v_changes_nothing(random):
    V = random.poisson(5 * low_rank(random)).astype(float)
    choices: list[dict[str, Any]] = [{"loss": KL}, {"loss": 1.5, "regularize_H": [L1(0.0)]}]
    for options in choices:
        a = factorize(V, 3, max_iter=20, **options)
        b = factorize(1e6 * V, 3, max_iter=20, **options)
        np.testing.assert_allclose(b.W @ b.H.T, 1e6 * a.W @ a.H.T, rtol=1e-5)  # after float32


def weighted_als(V: np.ndarray, weights: np.ndarray, r: int, seed: int) -> np.ndarray:
    """Plain projected weighted least squares, row by row: the prediction W Hᵀ."""
    from scipy.optimize import nnls

    rng = np.random.default_rng(seed)
    W, H = rng.random((V.shape[0], r)), rng.random((V.shape[1], r))
    for _ in range(60):
        for X, Y, A, B in ((W, H, V, weights), (H, W, V.T, weights.T)):
            for i in range(len(X)):
                root = np.sqrt(B[i])
                X[i] = nnls(root[:, None] * Y, root * A[i])[0]
    return W @ H.T


def test_held_out_error_is_that_of_a_plain_weighted_solver(random):
    V = low_rank(random) + 0.05 * random.random((30, 20))
    known = random.random(V.shape) < 0.6
    held_out = np.where(known, V, np.nan)
    plain = weighted_als(V, known.astype(float), 3, seed=1)
    options = {"max_iter": 500, "tol": 1e-7}
    ways = {
        "nan": factorize(held_out, 3, **options),
        "mask": factorize(V, 3, mask=known, **options),
        "weights": factorize(V, 3, weights=known.astype(float), **options),
        "sparse mask": factorize(
            scipy.sparse.csr_array(V), 3, mask=scipy.sparse.csr_array(known), **options
        ),
        "zeros": factorize(scipy.sparse.csr_array(V * known), 3, missing="zeros", **options),
        "dense zeros": factorize(V * known, 3, missing="zeros", **options),
    }

    def error(fit: np.ndarray, where: np.ndarray) -> float:
        return float(np.sqrt(np.mean((fit - V)[where] ** 2)))

    for name, result in ways.items():
        fit = result.W @ result.H.T
        assert error(fit, known) <= 1.05 * error(plain, known), name
        assert error(fit, ~known) <= 2 * error(plain, ~known), name
        np.testing.assert_allclose(result.rmse, error(fit, known), rtol=1e-6)


def test_few_known_entries_are_held_as_a_list(random):
    V = low_rank(random)
    known = random.random(V.shape) < 0.25
    a = factorize(V, 2, mask=known, max_iter=30)
    b = factorize(scipy.sparse.csr_array(V), 2, mask=scipy.sparse.csr_array(known), max_iter=30)
    np.testing.assert_allclose(a.W @ a.H.T, b.W @ b.H.T, rtol=1e-6)


def test_row_weights_and_standard_deviations(random):
    V, rows = low_rank(random) + random.random((30, 20)), random.random(30) + 0.1
    a = factorize(V, 3, weights=rows, max_iter=40)
    b = factorize(V, 3, weights=np.tile(rows[:, None], 20), max_iter=40)
    np.testing.assert_allclose(a.W, b.W)
    fit = a.W @ a.H.T
    np.testing.assert_allclose(a.loss, (rows[:, None] * (fit - V) ** 2).sum() / 2, rtol=1e-9)


def test_all_known_and_equal_is_plain(random):
    V = low_rank(random)
    a, b = factorize(V, 3, max_iter=5), factorize(V, 3, max_iter=5, mask=np.ones_like(V, bool))
    assert np.array_equal(a.W, b.W)


@pytest.mark.parametrize(
    ("side", "terms", "holds"),
    [
        ("regularize_W", Simplex(), lambda x: np.allclose(x.W.sum(1), 1)),
        ("regularize_H", Simplex(by="columns"), lambda x: np.allclose(x.H.sum(0), 1)),
        ("regularize_H", Bounds(0.2, 0.9), lambda x: x.H.min() >= 0.2 and x.H.max() <= 0.9),
        ("regularize_W", Free(), lambda x: x.W.min() < 0 <= x.H.min()),
        ("regularize_W", Group(1e3), lambda x: not x.W.any()),
        ("regularize_W", L1(1e4), lambda x: not x.W.any()),
    ],
)
def test_constraints_hold(side, terms, holds, random):
    V = low_rank(random)
    assert holds(factorize(V, 3, max_iter=60, **{side: terms}))


@pytest.mark.parametrize("loss", ["frobenius", KL])
def test_penalties_do_what_they_are_for(loss, random):
    V = low_rank(random) + 0.3 * random.random((30, 20))
    plain = factorize(V, 4, loss=loss, max_iter=100)
    rough = lambda x: float(np.square(np.diff(x.H, axis=0)).sum() / np.square(x.H).sum())  # noqa: E731
    both = {"regularize_W": L2(0.1), "loss": loss, "max_iter": 100}
    smooth = factorize(V, 4, regularize_H=Smooth(30.0), **both)
    assert rough(smooth) < 0.5 * rough(plain)
    sparse = factorize(V, 4, regularize_H=L1(3.0), **both)
    assert (sparse.H == 0).mean() > (plain.H == 0).mean()

    def overlap(H: np.ndarray) -> float:
        H = H / np.linalg.norm(H, axis=0)
        return float((H.T @ H).sum() - len(H.T))

    apart = factorize(V, 4, regularize_H=Orthogonal(3.0), **both)
    assert overlap(apart.H + 1e-12) < overlap(plain.H)


def test_symmetric(random):
    H = random.random((15, 3))
    V = H @ H.T
    result = factorize(V, 3, symmetric=True, max_iter=1000, tol=1e-8)
    assert np.array_equal(result.W, result.H)
    assert result.rmse < 0.01 * V.mean()


def test_separable_start_finds_the_anchors(random):
    H = random.random((20, 4))
    W = np.vstack([np.eye(4), random.dirichlet(np.ones(4), 40)])
    order = random.permutation(44)
    result = factorize((W @ H.T)[order], 4, init="separable", max_iter=0)
    found, true = (F / np.linalg.norm(F, axis=0) for F in (result.H, H))
    for column in true.T:  # the scale is shared with W
        assert min(np.abs(found.T - column).max(axis=1)) < 1e-9
    again = factorize(scipy.sparse.csr_array((W @ H.T)[order]), 4, init="separable", max_iter=0)
    np.testing.assert_allclose(again.H, result.H)


def test_stacks_and_tensors(random):
    V = torch.from_numpy(np.stack([random.poisson(low_rank(random)) for _ in range(2)])).double()
    result = factorize(V, 3, loss=KL, max_iter=50)
    assert isinstance(result.W, torch.Tensor)
    for k in range(2):
        alone = factorize(V[k], 3, loss=KL, max_iter=50, solver="mu-extrapolated")
        assert np.asarray(result.loss)[k] <= 1.3 * float(alone.loss)


def test_float32_stays(random):
    V = random.poisson(low_rank(random)).astype(np.float32)
    result = factorize(V, 3, loss=KL, max_iter=10)
    assert result.W.dtype == np.float32


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"loss": "hinge"}, "choose 'frobenius'"),
        ({"loss": "itakura-saito"}, r"β = 0 and V has \d+ zeros"),
        ({"mask": np.ones((3, 3))}, r"mask has shape \(3, 3\); it must have that of V, \(30, 20\)"),
        ({"weights": -np.ones((30, 20))}, "600 entries that are negative"),
        ({"mask": np.zeros((30, 20))}, "no entry of V is known"),
        ({"mask": np.full((30, 20), 0.5)}, r"600 entries that are neither 0 nor 1 .one is 0\.5."),
        ({"mask": np.full(30, 2)}, r"30 entries that are neither .* pass it as weights if that is"),
        ({"loss": KL, "solver": "cd"}, "squared error"),
        ({"missing": "nan"}, "choose 'zeros'"),
        ({"loss": KL, "solver": "her"}, "choose one of auto, newton"),
        ({"loss": KL, "solver": "hals"}, "squared error"),
        ({"regularize_W": Simplex(), "solver": "mu"}, "only L1 and L2"),
        ({"symmetric": True}, "square V"),
        (
            {"mask": np.eye(30, 20, dtype=bool), "solver": "hals"},
            "known entries with equal weights",
        ),
        ({"symmetric": True, "loss": KL}, "only with the squared error"),
        ({"regularize_W": "l1"}, "factormer.penalties"),
    ],
)
def test_misuse_gets_a_sentence(options, sentence, random):
    V = random.poisson(low_rank(random)).astype(float)
    with pytest.raises(ValueError, match=sentence):
        factorize(V, 3, **options)


@pytest.mark.parametrize(
    ("options", "says", "names"),
    [
        ({}, r"squared error\), 'auto', the default, takes 'her'", "auto, ahead, her, "),
        ({"engine": "reference"}, "takes 'her': leave solver out", "auto, ahead, her, "),
        ({"loss": KL}, "β = 1.*takes 'newton'", "auto, newton, mu, mu-extrapolated, ao-admm"),
        ({"loss": KL, "regularize_H": L1(0.1)}, "with L1.*takes 'newton'", "auto, newton, mu, "),
        ({"regularize_W": Simplex()}, "with Simplex.*takes 'ao-admm'", "auto, ao-admm"),
    ],
)
def test_an_unknown_solver_gets_the_names_of_those_that_serve(options, says, names, random):
    V = low_rank(random)
    words = f"solver is 'xyz', and no solver has this name.*{says}.* choose one of {names}"
    with pytest.raises(ValueError, match=words):
        factorize(V, 3, solver="xyz", **options)
    with pytest.raises(ValueError, match=words):
        factorize_many([V], 3, solver="xyz", **options)


def test_an_unknown_solver_for_data_beyond_memory_gets_those_that_serve_there(tmp_path):
    V = np.lib.format.open_memmap(tmp_path / "V.npy", "w+", float, (3000, 500))
    with pytest.raises(ValueError, match="takes one for data beyond memory, without a name: leave"):
        factorize(V, 3, solver="xyz", memory_limit="5MB")


def test_an_unknown_solver_for_one_factor_gets_those_for_one_factor():
    words = r"V ≈ H Hᵀ\), .*choose one of auto, hals, cd$"
    with pytest.raises(ValueError, match=words):
        factorize(np.eye(5), 2, symmetric=True, solver="xyz")


def test_a_solver_for_two_factors_is_refused_where_one_is_asked_for():
    with pytest.raises(ValueError, match=r"symmetric=True asks for one; choose one of auto, hals"):
        factorize(np.eye(5), 2, symmetric=True, solver="ahead")


def test_sparse_misuse_gets_a_sentence(random):
    V = scipy.sparse.csr_array(random.poisson(low_rank(random)).astype(float))
    with pytest.raises(ValueError, match="V is sparse and weights is dense"):
        factorize(V, 3, weights=np.ones((30, 20)))
    with pytest.raises(ValueError, match=r"must have that of V, \(30, 20\)"):
        factorize(V, 3, mask=scipy.sparse.eye_array(3))
    for mask in (0.5 * (V > 0), np.full(30, 3.0)):
        with pytest.raises(ValueError, match="neither 0 nor 1"):
            factorize(V, 3, mask=mask, missing="zeros")
    with pytest.raises(ValueError, match="need a dense V"):
        factorize(V, 3, loss=KL, regularize_W=Simplex())


def test_a_network_for_what_it_does_not_serve_is_refused():
    V = np.ones((5, 4))
    with pytest.raises(ValueError, match="'any-rank', which serves only the plain squared error"):
        factorize(V.T @ V, 2, accelerator="any-rank", symmetric=True)
    with pytest.raises(ValueError, match="'accel-r10', which serves only the plain squared error"):
        factorize(V, 2, accelerator="accel-r10", loss=KL)
    with pytest.raises(ValueError, match="replaces an extrapolation, and solver 'mu' has none"):
        factorize(V, 2, accelerator="any-rank", loss=KL, solver="mu")


@pytest.mark.parametrize(
    "options",
    [
        {"loss": KL},
        {"loss": KL, "solver": "mu-extrapolated"},
        {"regularize_W": L1(0.1), "regularize_H": L1(0.1), "solver": "ao-admm"},
        {"regularize_W": Simplex()},
        {"mask": np.arange(600).reshape(30, 20) % 7 > 0},
    ],
    ids=str,
)
def test_the_any_rank_network_serves_other_losses_and_penalties(options, random):
    V = random.poisson(5 * low_rank(random)).astype(float) + 0.01
    plain = factorize(V, 3, max_iter=60, tol=0, **options)
    learned = factorize(V, 3, max_iter=60, tol=0, accelerator="any-rank", **options)
    assert all(np.isfinite(F).all() and (F >= 0).all() for F in (learned.W, learned.H))
    rmse = learned.trace.rmse
    assert float(learned.error) <= min(rmse) * (1 + 1e-9)
    assert float(learned.error) <= 1.1 * float(plain.error)


@pytest.mark.parametrize("stored", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
def test_a_network_accelerates_multiplicative_updates_where_it_is_named(stored, random):
    V = random.poisson(5 * low_rank(random)).astype(float) + 0.01
    options: dict[str, Any] = {"loss": KL, "max_iter": 40, "tol": 0}
    named, auto, plain = (
        factorize(stored(V), 3, solver="mu-extrapolated", accelerator=a, **options)
        for a in ("any-rank-kl", "auto", None)
    )
    assert "with the network any-rank-kl" in str(named.plan)
    assert "any-rank" not in str(auto.plan)
    np.testing.assert_array_equal(auto.W, plain.W)
    assert float(named.loss) <= float(plain.loss) * 1.001
    assert (np.diff(named.trace.loss) <= 1e-12 * named.trace.loss[0]).all()


@pytest.mark.parametrize("unit", [1e-22, 1e-10, 1e15])
@pytest.mark.parametrize("solver", ["auto", "mu", "ao-admm"])
def test_unit_of_weights_changes_nothing(unit, solver, random):
    V = (low_rank(random) + 0.05 * random.random((30, 20))).astype(np.float32)
    omega = random.random((30, 20))
    plain, other = (
        factorize(V, 3, weights=c * omega, solver=solver, max_iter=40) for c in (1.0, unit)
    )
    assert (plain.status, plain.n_iter) == (other.status, other.n_iter)
    assert other.rmse == pytest.approx(np.sqrt(unit) * plain.rmse, rel=1e-3)
    np.testing.assert_allclose(other.W @ other.H.T, plain.W @ plain.H.T, rtol=1e-2, atol=1e-3)


def test_unit_of_weights_and_penalties_together_changes_nothing(random):
    V, omega = low_rank(random), random.random((30, 20))
    one = factorize(V, 3, weights=omega, regularize_H=L1(0.1), max_iter=20)
    far = factorize(V, 3, weights=1e40 * omega, regularize_H=L1(1e39), max_iter=20)
    np.testing.assert_allclose(far.W @ far.H.T, one.W @ one.H.T, rtol=1e-6)
    assert far.rmse == pytest.approx(1e20 * one.rmse)


def test_stack_with_weights_is_its_members(random):
    V, omega = low_rank(random), random.random((30, 20))
    both = torch.from_numpy(np.stack([V, V])), torch.from_numpy(np.stack([omega, 1e6 * omega]))
    result = factorize(both[0], 3, weights=both[1], solver="mu", tol=0.0, max_iter=10)
    alone = [
        np.sqrt((w * (V - W @ H.T) ** 2).mean())
        for w, W, H in zip(both[1].numpy(), result.W.numpy(), result.H.numpy(), strict=True)
    ]
    np.testing.assert_allclose(result.rmse, alone, rtol=1e-9)


def test_known_columns_are_those_of_float64_in_what_is_reported(random):
    V, known = low_rank(random), random.random((20, 1))
    fixed = Fixed(known, np.array([True, False, False]))
    result = factorize(V, 3, loss=KL, regularize_H=[fixed, L2(100.0)], max_iter=3)
    Y = result.W @ result.H.T
    loss = (V * np.log(V / Y) - V + Y).sum() + 100.0 * (result.H**2).sum() / 2
    assert result.loss == pytest.approx(loss, rel=1e-12)


def test_known_columns_of_any_size_have_a_start(random):
    V, known = 1e70 * low_rank(random), 1e36 * random.random((30, 2))
    V[:10], known[10:, 1] = 0, 0  # the second fits nothing
    fixed = Fixed(known, np.array([True, True, False]))
    result = factorize(V, 3, loss=KL, regularize_W=[fixed, Smooth(1e6)], max_iter=0)
    assert (result.W @ result.H.T).max() < 1e3 * V.max()


def test_a_given_start_that_penalties_want_is_kept(random):
    V, on = low_rank(random), L2(1e5)
    W, H = 1e-9 * random.random((30, 3)), 1e-9 * random.random((20, 3))
    result = factorize(V, 3, init="custom", W=W, H=H, max_iter=0, regularize_W=on, regularize_H=on)
    assert result.loss == pytest.approx((V**2).sum() / 2)


def test_a_given_start_without_a_product_is_kept():
    W, H = np.array([[1.0, 0.0]] * 3), np.array([[0.0, 2.0]] * 2)
    result = factorize(np.ones((3, 2)), 2, init="custom", W=W, H=H, loss=KL, max_iter=0)
    np.testing.assert_array_equal(result.W, W)


def test_admm_goes_on_where_an_iterate_meets_the_pole():
    """A stack does, as long as a member has an error: so does one matrix."""
    rng = torch.Generator().manual_seed(4)  # of which two do
    V = 0.05 + torch.rand(3, 4, 6, dtype=torch.float64, generator=rng)
    start: Any = {
        name: torch.rand(3, size, 3, dtype=torch.float64, generator=rng)
        for name, size in (("W", 4), ("H", 6))
    }
    options: Any = {"loss": -1.0, "solver": "ao-admm", "init": "custom", "tol": 0, "max_iter": 10}
    errors: Any = factorize(V, 3, **start, **options).rmse
    for k in range(3):
        one = factorize(V[k], 3, **{name: F[k] for name, F in start.items()}, **options)
        assert one.rmse == pytest.approx(errors[k], rel=1e-2)


@pytest.mark.parametrize("c", [1e-300, 1e-100, 1e100])
def test_the_size_of_counts_does_not_matter(c):
    V = np.random.default_rng(0).random((30, 20))
    plain, scaled = (factorize(A, 3, loss=KL, max_iter=20) for A in (V, c * V))
    assert scaled.rmse / np.sqrt(c) == pytest.approx(plain.rmse, rel=1e-3)


@pytest.mark.parametrize("loss", ["frobenius", KL])
@pytest.mark.parametrize("known", ["all", "weighted"])
def test_rmse_is_of_the_data_and_loss_of_the_objective_where_penalties_are(loss, known, random):
    V = low_rank(random) + 0.1
    omega = np.ones(V.shape) if known == "all" else random.random(V.shape)
    given = {} if known == "all" else {"weights": omega}
    penalty: Any = {"regularize_W": L1(0.3), "regularize_H": L2(0.2)}
    result = factorize(V, 3, loss=loss, max_iter=50, **given, **penalty)
    fit = result.W @ result.H.T
    entries = (fit - V) ** 2 / 2 if loss == "frobenius" else V * np.log(V / fit) - V + fit
    misfit = (omega * entries).sum()
    terms = 0.3 * result.W.sum() + 0.1 * (result.H**2).sum()
    assert result.rmse == pytest.approx(np.sqrt(2 * misfit / V.size), rel=1e-9)
    assert result.loss == pytest.approx(misfit + terms, rel=1e-9)
    table = factorize_many([V], 3, loss=loss, max_iter=50, **penalty).columns()
    alone = factorize(V, 3, loss=loss, max_iter=50, **penalty)
    assert table["rmse"][0] == pytest.approx(alone.rmse)
    assert table["loss"][0] == pytest.approx(alone.loss)


def test_rmse_of_a_stack_with_penalties_is_that_of_each_member(random):
    V = torch.from_numpy(np.stack([low_rank(random), 2 * low_rank(random)]))
    result: Any = factorize(V, 3, regularize_W=L1(0.3), regularize_H=L1(0.1), max_iter=20)
    residual = (result.W @ result.H.mT - V).square().mean(dim=(1, 2)).sqrt()
    np.testing.assert_allclose(result.rmse, residual.numpy(), rtol=1e-9)
    assert (result.loss > result.rmse**2 * V[0].numel() / 2).all()
    assert "rmse" in repr(result)


@pytest.mark.parametrize("unit", [1e-170, 1e160])
@pytest.mark.parametrize("beta", [3.0, -1.0])
def test_powers_of_the_unit_that_overflow_change_no_fit(unit, beta, random):
    V = low_rank(random) + 0.1
    a, b = (factorize(c * V, 3, loss=beta, max_iter=20, tol=0) for c in (1.0, unit))
    np.testing.assert_allclose(b.W / unit**0.5 @ (b.H / unit**0.5).T, a.W @ a.H.T, rtol=1e-3)


def test_a_unit_of_errors_beyond_float64_is_refused_in_a_sentence(random):
    with pytest.raises(ValueError, match="divide V by its mean"):
        factorize(1e300 * low_rank(random), 3, loss=3.0)
