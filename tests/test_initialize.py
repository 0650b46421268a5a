"""Starting points: NNDSVD against a loop and against scikit-learn, then the hard cases."""

import numpy as np
import pytest
import torch
from sklearn.decomposition._nmf import (
    _initialize_nmf,  # pyright: ignore[reportAttributeAccessIssue]
)
from torch import Tensor

from factormer.factors import Factors
from factormer.initialize import NNDSVD, Given, Initializer, Random, nndsvd, truncated_svd
from factormer.matrix import Dense
from factormer.problem import Problem
from tests import reference
from tests.laws.cases import Case, stacked

SHAPES = pytest.mark.parametrize("shape", [(9, 6), (6, 9), (6, 6)], ids=str)


def draw(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=rng)


def draw_rough(rng: torch.Generator, m: int, n: int) -> Tensor:
    """A matrix with well separated singular values and zeros in NNDSVD."""
    return draw(rng, m, n).pow(3) * (draw(rng, m, n) > 0.2)


# Singular value decomposition


@SHAPES
def test_singular_triplets_are_those_of_numpy(shape, rng):
    V = draw_rough(rng, *shape)
    U, S, Z = truncated_svd(Dense(V), 4)
    np.testing.assert_allclose(S, np.linalg.svd(V.numpy())[1][:4], rtol=1e-10)
    torch.testing.assert_close(U.mT @ U, torch.eye(4, dtype=V.dtype))
    torch.testing.assert_close(Z.mT @ Z, torch.eye(4, dtype=V.dtype))
    torch.testing.assert_close(V @ Z, U * S)


def test_no_more_triplets_than_rows_or_columns(rng):
    U, S, Z = truncated_svd(Dense(draw(rng, 3, 7)), 5)
    assert (U.shape, S.shape, Z.shape) == ((3, 3), (3,), (7, 3))


def test_singular_vectors_keep_the_precision_of_the_data(rng):
    V = draw_rough(rng, 9, 6)
    single, double = truncated_svd(Dense(V.float()), 4), truncated_svd(Dense(V), 4)
    for a, b in zip(single, double, strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a.double().abs(), b.abs(), rtol=1e-4, atol=1e-4)


# NNDSVD


@SHAPES
@pytest.mark.parametrize("rank", [1, 3, 6])
def test_nndsvd_is_that_of_boutsidis_and_gallopoulos(shape, rank, rng):
    V = draw_rough(rng, *shape)
    x = NNDSVD()(Problem(Dense(V), rank), rng)
    W, H = reference.nndsvd(V.numpy(), rank)
    np.testing.assert_allclose(x.W, W, atol=1e-9)
    np.testing.assert_allclose(x.H, H, atol=1e-9)


@SHAPES
def test_nndsvd_is_that_of_scikit_learn(shape, rng):
    V = draw_rough(rng, *shape)
    x = NNDSVD()(Problem(Dense(V), 4), rng)
    W, Ht = _initialize_nmf(V.numpy(), 4, init="nndsvd", random_state=0)  # drops what is below 1e-6
    np.testing.assert_allclose(x.W, W, atol=2e-6)
    np.testing.assert_allclose(x.H, Ht.T, atol=2e-6)


def test_signs_of_the_singular_vectors_do_not_matter(rng):
    U, S, Z = truncated_svd(Dense(draw_rough(rng, 9, 6)), 4)
    signs = torch.tensor([-1.0, 1.0, -1.0, -1.0], dtype=U.dtype)
    for F, G in zip(nndsvd(U, S, Z), nndsvd(signs * U, S, signs * Z), strict=True):
        torch.testing.assert_close(F, G)


def test_zeros_are_kept(rng):
    x = NNDSVD()(Problem(Dense(draw_rough(rng, 9, 6)), 4), rng)
    for F in x:
        assert (F[:, 0] > 0).all()
        assert (F[:, 1:] == 0).sum() > F[:, 1:].numel() / 4


def test_fill_puts_the_mean_in_place_of_zeros(rng):
    problem = Problem(Dense(draw_rough(rng, 9, 6)), 4)
    plain, filled = NNDSVD()(problem, rng), NNDSVD(fill=1.0)(problem, rng)
    for F, G in zip(plain, filled, strict=True):
        torch.testing.assert_close(G, torch.where(F > 0, F, problem.mean()))


def test_first_component_is_the_best_of_rank_one(rng):
    V = draw_rough(rng, 9, 6)
    x = NNDSVD()(Problem(Dense(V), 1), rng)
    singular = np.linalg.svd(V.numpy())[1]
    np.testing.assert_allclose(Dense(V).sq_error(x), (singular[1:] ** 2).sum())


def test_nndsvd_draws_nothing_while_the_rank_is_within_bounds(rng):
    problem, before = Problem(Dense(draw(rng, 9, 6)), 6), rng.get_state()
    NNDSVD()(problem, rng)
    assert torch.equal(rng.get_state(), before)


# Hard cases


@pytest.mark.parametrize("start", [Random(), NNDSVD(), NNDSVD(fill=1.0)], ids=repr)
@pytest.mark.parametrize(
    ("m", "n", "rank"), [(3, 5, 7), (1, 6, 2), (6, 1, 1), (1, 1, 1), (1, 1, 3)], ids=str
)
def test_start_is_feasible_where_the_rank_exceeds_the_sizes(start, m, n, rank, rng):
    V = draw(rng, m, n)
    problem = Problem(Dense(V), rank)
    x = start(problem, rng)
    assert (x.W.shape, x.H.shape) == ((m, rank), (n, rank))
    assert all((F >= 0).all() and F.isfinite().all() for F in x)


@pytest.mark.parametrize("start", [Random(), NNDSVD(), NNDSVD(fill=1.0)], ids=repr)
@pytest.mark.parametrize("rank", [2, 6])
def test_start_at_a_matrix_of_zeros_fits_it(start, rank, rng):
    problem = Problem(Dense(torch.zeros(4, 5)), rank)
    x = start(problem, rng)
    assert all(F.isfinite().all() for F in x)
    assert problem.loss(x) == 0


def test_extra_components_are_small_and_random(rng):
    V = draw(rng, 3, 5)
    x = NNDSVD()(Problem(Dense(V), 7), rng)
    W, H = reference.nndsvd(V.numpy(), 3)
    np.testing.assert_allclose(x.W[:, :3], W, atol=1e-9)
    np.testing.assert_allclose(x.H[:, :3], H, atol=1e-9)
    extra = x.W[:, 3:] @ x.H[:, 3:].mT
    assert 0 < extra.max() < 4 * V.mean() / 100  # four components of at most a hundredth


def test_single_row_is_fitted_exactly(rng):
    problem = Problem(Dense(draw(rng, 1, 6)), 1)
    assert problem.loss(NNDSVD()(problem, rng)) < 1e-20


def test_matrix_of_lower_rank_than_asked_for_is_started_exactly(rng):
    problem = Problem(Dense(draw(rng, 6, 1) @ draw(rng, 1, 5)), 3)
    x = NNDSVD()(problem, rng)
    assert all((F >= 0).all() and F.isfinite().all() for F in x)
    assert problem.rmse(x) < 1e-6


# Padded stacks


@pytest.mark.parametrize("start", [NNDSVD(), NNDSVD(fill=0.0)], ids=["plain", "no fill"])
def test_padded_stack_starts_as_its_members(start, rng):
    sizes = [(4, 6), (7, 3), (7, 6)]
    cases = [blank_case(draw_rough(rng, *size)) for size in sizes]
    together = start(stacked(cases).problem, rng)
    for k, (case, (m, n)) in enumerate(zip(cases, sizes, strict=True)):
        alone = start(case.problem, rng)
        torch.testing.assert_close(together.W[k, :m], alone.W)
        torch.testing.assert_close(together.H[k, :n], alone.H)


def blank_case(V: Tensor, rank: int = 3) -> Case:
    m, n = V.shape
    return Case(Problem(Dense(V), rank), Factors(V.new_zeros(m, rank), V.new_zeros(n, rank)))


@pytest.mark.parametrize(
    ("start", "rank"),
    [
        (Random(), 3),
        (Random(), 9),
        (NNDSVD(), 3),
        (NNDSVD(), 9),
        (NNDSVD(fill=1.0), 3),
    ],
    ids=str,
)
def test_padding_stays_zero(start: Initializer, rank, rng):
    sizes = [(4, 6), (7, 3), (1, 2), (7, 6)]
    cases = [blank_case(draw(rng, *size), rank) for size in sizes]
    x = start(stacked(cases).problem, rng)
    for k, (m, n) in enumerate(sizes):
        assert not x.W[k, m:].any()
        assert not x.H[k, n:].any()


# Others


def test_random_start_is_the_best_multiple_of_itself(rng):
    problem = Problem(Dense(draw(rng, 9, 6)), 3)
    x = Random()(problem, rng)
    best = problem.loss(x)
    for c in (0.99, 1.01):
        assert problem.loss(x.scale(c)) > best


def test_random_start_depends_on_the_generator_alone(rng):
    problem = Problem(Dense(draw(rng, 9, 6)), 3)
    a, b = (Random()(problem, torch.Generator().manual_seed(5)) for _ in range(2))
    c = Random()(problem, torch.Generator().manual_seed(6))
    assert torch.equal(a.W, b.W)
    assert not torch.equal(a.W, c.W)


def test_given_start_is_what_was_given(rng):
    x0 = Factors(draw(rng, 9, 3), draw(rng, 6, 3))
    assert Given(x0)(Problem(Dense(draw(rng, 9, 6)), 3), rng) is x0
