"""factorize() takes what people have, by any names, and gives finite feasible factors."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import sklearn.datasets
import torch

import factormer
from factormer import Result, Status, factorize
from factormer.data.intake import as_matrix
from factormer.nn.zoo import save_model
from factormer.penalties import L1
from factormer.run.registry import ALIASES, STARTS
from factormer.run.registry import SOLVERS as KINDS
from factormer.solvers.coding import Coder

SOLVERS = [kind.name for kind in KINDS if {"free", "least squares"} <= set(kind.needs)]
CARDS = factormer.models()
INITS = ["auto", *STARTS, *(name for name, card in CARDS.items() if card.use == "init")]
ACCELERATORS = [None, "auto", *(name for name, c in CARDS.items() if c.use == "accelerator")]
NETWORKS = [{card.use: name} for name, card in CARDS.items() if card.use != "model"]
RANK_10 = [{card.use: name} for name, card in CARDS.items() if card.ranks == "rank 10"]


def low_rank(m: int = 30, n: int = 25, rank: int = 4, seed: int = 0) -> np.ndarray:
    """A matrix that no NMF of its rank fits exactly."""
    rng = np.random.default_rng(seed)
    V = rng.exponential(size=(m, rank)) @ rng.exponential(size=(rank, n))
    return V + 0.1 * rng.random((m, n))


V = low_rank()


def assert_feasible(result: Result, shape: tuple[int, int, int]) -> None:
    m, n, r = shape
    assert (result.W.shape, result.H.shape) == ((m, r), (n, r))
    for F in result.factors:
        assert F.isfinite().all()
        assert (F >= 0).all()


def assert_same(a: Result, b: Result, *, rtol: float = 1e-7) -> None:
    for one, other in zip(a.factors, b.factors, strict=True):
        torch.testing.assert_close(one.double(), other.double(), rtol=rtol, atol=rtol)


def coefficients(data: Any, H: Any) -> torch.Tensor:
    return Coder.of(torch.as_tensor(H))(as_matrix(data))


def run(data: Any = V, rank: int = 4, **options: Any) -> Result:
    """A short run of fixed length."""
    return factorize(data, rank, **({"max_iter": 8, "tol": 0.0} | options))


# What comes in


@pytest.mark.parametrize(
    "form",
    [
        torch.from_numpy,
        np.ndarray.tolist,
        np.asfortranarray,
        lambda A: np.repeat(A, 2, axis=0)[::2],
        lambda A: torch.from_numpy(A.T.copy()).T,
        lambda A: A[:, ::-1].copy()[:, ::-1],
        lambda A: A.astype(">f8"),
    ],
    ids=["tensor", "list", "Fortran", "strided", "transposed tensor", "reversed", "big-endian"],
)
def test_form_of_the_data_does_not_matter(form):
    assert_same(run(form(V)), run(V), rtol=1e-9)


@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.int64, np.float16, np.bool_])
def test_type_of_the_numbers_does_not_matter(kind):
    counts = (10 * V).round().astype(kind)
    result = run(counts)
    assert result.W.dtype == np.float64
    assert_same(result, run(counts.astype(np.float64)), rtol=0)


def test_single_precision_gives_single_precision_and_nearly_the_same():
    single, double = run(V.astype(np.float32)), run(V)
    assert (single.W.dtype, single.H.dtype) == (np.float32, np.float32)
    assert_same(single, double, rtol=1e-3)
    assert single.rmse == pytest.approx(double.rmse, rel=1e-3)


def test_data_are_left_as_they_are():
    data, (W, H) = V.copy(), (np.ones((30, 4)), np.ones((25, 4)))
    run(data, init="custom", W=W, H=H)
    assert np.array_equal(data, V)
    assert (W == 1).all()
    assert (H == 1).all()


def test_data_that_track_gradients_are_taken():
    result = run(torch.from_numpy(V).requires_grad_())
    assert not result.W.requires_grad
    assert_same(result, run(V), rtol=0)


@pytest.mark.parametrize("c", [1e-100, 1 / 255, 3.0, 1e100])
def test_multiple_of_the_matrix_has_the_root_of_it_in_each_factor(c):
    plain, scaled = run(V), run(c * V)
    np.testing.assert_allclose(scaled.W / c**0.5, plain.W, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(scaled.H / c**0.5, plain.H, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(scaled.trace.rmse / c, plain.trace.rmse, rtol=1e-7)


@pytest.mark.parametrize("solver", sorted(set(SOLVERS) - {"ahead"}))  # which serves one matrix
def test_stack_equals_its_members(solver):
    matrices = [low_rank(seed=seed) * scale for seed, scale in enumerate((1.0, 100.0, 0.01))]
    names = {"init": "nndsvd", "solver": solver}
    stack = run(np.stack(matrices), **names)
    for k, matrix in enumerate(matrices):
        alone = run(matrix, engine="reference", **names)  # which carries out stacks
        np.testing.assert_allclose(stack.W[k], alone.W, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(stack.H[k], alone.H, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(stack.trace.rmse[:, k], alone.trace.rmse, rtol=1e-7)


@pytest.mark.parametrize("names", RANK_10, ids=str)
def test_stack_equals_its_members_with_a_network(names):
    matrices = [low_rank(seed=seed) for seed in range(2)]
    names = {"init": "nndsvd", "solver": "hals"} | names
    stack = run(np.stack(matrices), 10, max_iter=2, **names)
    for k, matrix in enumerate(matrices):
        alone = run(matrix, 10, max_iter=2, **names)
        np.testing.assert_allclose(stack.trace.rmse[:, k], alone.trace.rmse, rtol=1e-3)


# What comes out


def test_error_is_that_of_the_factors_in_the_unit_of_the_data():
    result = run(100 * V)
    R = 100 * V - result.W @ result.H.T
    assert result.rmse == pytest.approx(np.sqrt(np.mean(R**2)))


def test_callback_sees_the_trace_as_it_grows():
    rows = []
    result = run(100 * V, callback=rows.append)
    assert [row.iteration for row in rows] == list(range(9))
    np.testing.assert_allclose([row.rmse.item() for row in rows], result.trace.rmse)


def test_exact_factorisation_is_found():
    exact = np.kron(np.eye(3), 1 + np.random.default_rng(0).random((4, 1)) @ np.ones((1, 3)))
    result = factorize(exact, 3, init="nndsvda", tol=1e-6)
    assert result.status is Status.CONVERGED
    assert result.n_iter > 0
    assert result.rmse < 1e-5 * exact.mean()


def test_time_limit_below_what_the_start_takes_returns_the_start():
    result = factorize(V, 4, time_limit=1e-9)
    assert (result.status, result.n_iter) == (Status.TIME_LIMIT, 0)
    assert_feasible(result, (30, 25, 4))


def test_tolerance_of_zero_runs_all_iterations():
    result = factorize(np.ones((4, 3)), 1, tol=0.0, max_iter=13)
    assert (result.status, result.n_iter) == (Status.MAX_ITER, 13)


# Chance


@pytest.mark.parametrize("init", ["random", "nndsvd"])
def test_same_seed_gives_the_same_answer(init):
    assert_same(run(init=init, random_state=5), run(init=init, random_state=5), rtol=0)


def test_other_seed_and_no_seed_give_other_answers():
    answers = [run(init="random", random_state=seed).factors.W for seed in (0, 1, None, None)]
    assert not any(torch.equal(a, b) for k, a in enumerate(answers) for b in answers[:k])


@pytest.mark.parametrize("names", [{"init": "random"}, *RANK_10], ids=str)
def test_global_generator_is_left_alone(names):
    before = torch.get_rng_state()
    run(rank=10, max_iter=1, **names)
    assert torch.equal(torch.get_rng_state(), before)


# Names


def names_together() -> Iterator[Any]:
    """Each two names meet in every run, all three of them in the slow one."""
    for (i, init), (j, solver), (k, accelerator) in product(
        enumerate(INITS), enumerate(["auto", *SOLVERS]), enumerate(ACCELERATORS)
    ):
        marks = [pytest.mark.slow] if (i + j + k) % 3 else []
        yield pytest.param(init, solver, accelerator, marks=marks)


@pytest.mark.filterwarnings("ignore:the network changed nothing")
@pytest.mark.parametrize(("init", "solver", "accelerator"), list(names_together()))
def test_every_choice_of_names_works(init, solver, accelerator):
    result = run(rank=10, init=init, solver=solver, accelerator=accelerator, max_iter=1)
    assert_feasible(result, (30, 25, 10))
    assert result.status is Status.MAX_ITER


@pytest.mark.parametrize("rank", [1, 2, 9, 10, 11, 25, 40])
def test_automatic_choice_works_at_every_rank(rank):
    assert_feasible(run(rank=rank, max_iter=2), (30, 25, rank))


@pytest.mark.parametrize("name", [name for name, card in CARDS.items() if card.use == "init"])
def test_learned_start_is_no_worse_than_that_it_is_made_from(name):
    learned, plain = (run(rank=10, init=init, max_iter=0) for init in (name, "nndsvd"))
    assert learned.rmse <= plain.rmse


def test_network_of_ones_own_is_given_by_its_path(tmp_path):
    name, card = next((n, c) for n, c in CARDS.items() if c.use == "init")
    path = tmp_path / "mine.safetensors"
    save_model(factormer.load_model(name), card, path)
    assert_same(run(rank=10, init=str(path)), run(rank=10, init=name), rtol=0)


def test_custom_start_is_where_the_run_begins():
    W, H = np.random.default_rng(1).random((30, 4)), np.random.default_rng(2).random((25, 4))
    result = run(init="custom", W=W, H=H, max_iter=0)
    np.testing.assert_allclose(result.W, W)
    np.testing.assert_allclose(result.H, H)


def test_run_goes_on_from_what_another_found():
    options = {"solver": "ao-admm", "tol": 0.0, "scale": None}  # whose ρ has a scale
    first = run(max_iter=10, **options)
    second = run(max_iter=5, init="custom", W=first.W, H=first.H, **options)
    whole = run(max_iter=15, **options)
    assert second.rmse <= first.rmse
    assert second.rmse == pytest.approx(whole.rmse, rel=1e-3)


@pytest.mark.parametrize("options", [{}, {"regularize_W": L1(0.1)}], ids=["plain", "L1"])
def test_coordinate_descent_is_hals_by_its_other_name(options):
    a, b = (run(solver=name, accelerator=None, max_iter=5, **options) for name in ("cd", "hals"))
    np.testing.assert_array_equal(a.H, b.H)


# Sentences


@pytest.mark.parametrize("option", ["init", "solver", "accelerator"])
def test_unknown_name_is_refused_with_the_names_there_are(option):
    solvers = ["auto", *SOLVERS, *ALIASES]
    known = {"init": [*INITS, "custom"], "solver": solvers, "accelerator": ACCELERATORS}
    with pytest.raises(ValueError, match=rf"{option} is 'nonsense'.* choose one of ") as caught:
        run(V, 10, **{option: "nonsense"})
    listed = str(caught.value).partition("choose one of ")[2].split(", ")
    assert sorted(listed) == sorted(map(str, known[option]))


@pytest.mark.parametrize(
    ("option", "use"), [("init", "accelerator"), ("accelerator", "init")], ids=["init", "accel"]
)
def test_network_for_another_use_is_refused(option, use, tmp_path):
    name, card = next((n, CARDS[n]) for names in RANK_10 for u, n in names.items() if u == use)
    with pytest.raises(ValueError, match=f"{option} is '{name}'; choose one of "):
        run(rank=10, **{option: name})
    path = tmp_path / "mine.safetensors"
    save_model(factormer.load_model(name), card, path)
    with pytest.raises(ValueError, match=r"takes \d point.* choose an init-… model as init and an"):
        run(rank=10, **{option: str(path)})


@pytest.mark.parametrize("names", RANK_10, ids=str)
def test_network_at_another_rank_is_refused_with_what_would_work(names):
    sentence = "rank is 4, but this network serves only rank 10; choose rank 10, or .* any rank"
    with pytest.raises(ValueError, match=sentence):
        run(rank=4, **names)


@pytest.mark.parametrize("rank", [1, 4, 25, 40])
@pytest.mark.parametrize("solver", ["auto", "her", "her-admm", "hals"])
def test_any_rank_network_serves_every_rank(rank, solver):
    result = run(rank=rank, solver=solver, accelerator="any-rank", max_iter=20)
    assert_feasible(result, (*V.shape, rank))
    digits = 1e-6 if result.rmse > 1e-3 * V.mean() else 1e-4  # of what an exact fit leaves
    assert result.rmse == pytest.approx(min(result.trace.rmse), rel=digits)
    if solver != "her-admm":  # whose plain iterations may rise
        assert (np.diff(result.trace.rmse[1:]) <= 1e-9 * result.trace.rmse[0]).all()


def test_any_rank_network_is_no_start(tmp_path):
    path = tmp_path / "mine.safetensors"
    save_model(factormer.load_model("any-rank"), CARDS["any-rank"], path)
    with pytest.raises(ValueError, match="is an any-rank accelerator; choose a network that serv"):
        run(init=str(path))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"data": -V}, "V has 750 entries below zero .* shift or clip them first"),
        ({"rank": 0}, "rank is 0; it must be a whole number of at least 1"),
        ({"rank": True}, "rank is True; it must be a whole number"),
        ({"max_iter": -1}, "max_iter is -1; it must be a whole number of at least 0"),
        ({"tol": -1.0}, "tol is -1.0; it must be at least 0"),
        ({"time_limit": 0.0}, "time_limit is 0.0; it must be a positive number of seconds"),
        ({"device": "gpu"}, "device is 'gpu', which is not on this machine; choose 'cpu'"),
        ({"init": "custom"}, "init='custom' goes with W and H"),
        ({"W": V[:, :4], "H": V.T[:, :4]}, "W and H go with init='custom'"),
        ({"init": "custom", "W": V[:, :4]}, "H is missing; a start is given by both"),
        ({"init": "custom", "W": V[:, :4], "H": V[:4]}, r"H has shape \(4, 25\); .* \(25, 4\)"),
        ({"data": np.full((9, 9), 1e-320)}, "as its largest entry; .* multiply V by"),
    ],
)
def test_wrong_argument_is_refused_with_a_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        run(**options)


# Matrices of odd kinds; warnings are errors

ZERO_LINES = V.copy()
ZERO_LINES[3], ZERO_LINES[:, 4] = 0, 0
SINGLE_ENTRY = np.zeros((12, 11))
SINGLE_ENTRY[3, 2] = 5
ODD = {
    "zero": np.zeros((12, 11)),
    "constant": np.full((12, 11), 3.0),
    "row": V[:1],
    "column": V[:, :1],
    "number": V[:1, :1],
    "rank above its size": V[:5, :6],
    "empty row and column": ZERO_LINES,
    "single entry": SINGLE_ENTRY,
    "identity": np.eye(12),
    "large": 1e150 * V,
    "small": 1e-150 * V,
}


@pytest.mark.filterwarnings("ignore:the network changed nothing")
@pytest.mark.parametrize("names", NETWORKS, ids=str)
@pytest.mark.parametrize("matrix", ODD.values(), ids=ODD.keys())
def test_odd_matrix_gives_finite_feasible_factors_with_a_network(matrix, names):
    assert_feasible(run(matrix, 10, max_iter=2, **names), (*matrix.shape, 10))


@pytest.mark.parametrize("matrix", ["zero", "constant", "row", "column", "number"])
def test_matrix_of_rank_one_or_none_is_fitted_at_once(matrix):
    result = factorize(ODD[matrix], 1, init="nndsvd")
    assert result.status is Status.CONVERGED
    assert result.n_iter <= 2
    assert result.rmse == pytest.approx(0, abs=1e-12)


def test_stack_with_a_zero_matrix_is_fitted_as_its_members():
    names: dict[str, Any] = {"init": "nndsvd", "solver": "her-admm"}
    result = run(np.stack([np.zeros_like(V), V]), **names)
    assert not result.W[0].any()
    np.testing.assert_allclose(result.W[1], run(V, **names).W, rtol=1e-7, atol=1e-9)


# Coefficients


def test_coefficients_are_those_of_nonnegative_least_squares():
    rng = np.random.default_rng(0)
    data, H = rng.exponential(size=(20, 15)), rng.exponential(size=(15, 6))
    expected = np.stack([scipy.optimize.nnls(H, v)[0] for v in data])
    assert (expected == 0).any()  # some constraints are active
    np.testing.assert_allclose(coefficients(data, H), expected, atol=1e-9)


def test_coefficients_in_single_precision_are_nearly_those_in_double():
    rng = np.random.default_rng(0)
    data, H = rng.exponential(size=(20, 15)), rng.exponential(size=(15, 6))
    single = coefficients(data.astype(np.float32), H)
    assert single.dtype is torch.float32
    np.testing.assert_allclose(single, coefficients(data, H), atol=1e-4)


@pytest.mark.parametrize("c", [1e-12, 1e12])
def test_coefficients_scale_with_the_data_and_against_the_components(c):
    rng = np.random.default_rng(0)
    data, H = rng.exponential(size=(20, 15)), rng.exponential(size=(15, 6))
    W = coefficients(data, H).numpy()
    np.testing.assert_allclose(coefficients(c * data, H) / c, W, atol=1e-9)
    np.testing.assert_allclose(coefficients(data, c * H) * c, W, atol=1e-9)


@pytest.mark.parametrize("H", [np.zeros((25, 3)), np.eye(25, 3), np.ones((25, 3))])
def test_coefficients_of_poor_components_are_finite_and_fit_no_worse_than_none(H):
    W = coefficients(V, H).numpy()
    assert np.isfinite(W).all()
    assert (W >= 0).all()
    assert np.linalg.norm(V - W @ H.T) <= np.linalg.norm(V)


@pytest.mark.parametrize("scale", [1e-290, 1e-40, 1.0, 1e40, 1e290])
def test_coefficients_do_not_depend_on_the_unit(scale):
    H = np.array([[1.0, 0.2], [0.1, 1.0], [0.5, 0.5]])
    W = np.array([[1.0, 2.0], [0.0, 3.0]])
    found = coefficients(scale * (W @ H.T), H).numpy() / scale
    np.testing.assert_allclose(found, W, rtol=1e-10, atol=1e-12)


def test_coefficients_of_nearly_equal_components_fit_as_well_as_scipys():
    rng = np.random.default_rng(3)
    H = rng.random((30, 4))
    H[:, 1] = H[:, 0] + 1e-6 * rng.random(30)
    data = rng.random((5, 30))
    W = coefficients(data, H).numpy()
    best = [scipy.optimize.nnls(H, row)[1] for row in data]
    np.testing.assert_allclose(np.linalg.norm(data - W @ H.T, axis=1), best, rtol=1e-9)


@pytest.mark.parametrize("seed", [1.5, "0", -1, 2**63, True, np.random.RandomState(0)])
def test_seed_that_is_none_is_refused_with_what_is_allowed(seed):
    with pytest.raises((ValueError, TypeError)):  # a TypeError where the types are checked first
        run(random_state=seed)


def test_accelerator_under_the_automatic_solver_is_no_worse_than_hals_alone():
    digits = sklearn.datasets.load_digits(return_X_y=True)[0][:300]
    plain = factorize(digits, 10, max_iter=30, solver="hals")
    accelerated = factorize(digits, 10, max_iter=30, accelerator="accel-r10")
    assert accelerated.rmse <= plain.rmse * 1.001


def test_an_array_of_three_axes_is_warned_of():
    V = np.random.default_rng(0).random((3, 6, 5))
    with pytest.warns(FutureWarning, match=r"stack of 3 separate matrices of 6×5") as seen:
        factormer.factorize(V, 2, max_iter=3)
    assert "factormer.factorize_many(V, rank)" in str(seen[0].message)
    assert "V.reshape(-1, V.shape[-1])" in str(seen[0].message)
    assert seen[0].filename == __file__
