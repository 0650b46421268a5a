"""Starting points: NNDSVD against a loop and against scikit-learn, then the hard cases."""

import numpy as np
import pytest
import torch
from sklearn.decomposition._nmf import (
    _initialize_nmf,  # pyright: ignore[reportAttributeAccessIssue]
)
from torch import Tensor

from factormer.data import Dense, LowRank, sketch
from factormer.data.factors import Factors
from factormer.data.svd import gram_svd, lowrank_svd, truncated_svd
from factormer.problem.problem import Problem
from factormer.starts import NNDSVD, Given, Initializer, Merged, Random, Rotated
from factormer.starts.base import complete
from factormer.starts.merged import merge
from factormer.starts.nndsvd import nndsvd
from factormer.starts.rotated import rotations
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
    U, S, Z = truncated_svd(Dense(V), 4, rng)
    np.testing.assert_allclose(S, np.linalg.svd(V.numpy())[1][:4], rtol=1e-10)
    torch.testing.assert_close(U.mT @ U, torch.eye(4, dtype=V.dtype))
    torch.testing.assert_close(Z.mT @ Z, torch.eye(4, dtype=V.dtype))
    torch.testing.assert_close(V @ Z, U * S)


def test_no_more_triplets_than_rows_or_columns(rng):
    U, S, Z = truncated_svd(Dense(draw(rng, 3, 7)), 5, rng)
    assert (U.shape, S.shape, Z.shape) == ((3, 3), (3,), (7, 3))


def test_singular_vectors_keep_the_precision_of_the_data(rng):
    V = draw_rough(rng, 9, 6)
    single, double = truncated_svd(Dense(V.float()), 4, rng), truncated_svd(Dense(V), 4, rng)
    for a, b in zip(single, double, strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a.double().abs(), b.abs(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(260, 230), (230, 260)], ids=str)
def test_triplets_of_a_large_matrix_are_nearly_those_of_numpy(shape, rng):
    V = draw(rng, shape[0], 5) @ draw(rng, 5, shape[1]) + 0.01 * draw(rng, *shape)
    U, S, Z = truncated_svd(Dense(V), 5, rng)
    np.testing.assert_allclose(S, np.linalg.svd(V.numpy())[1][:5], rtol=1e-4)
    torch.testing.assert_close(U.mT @ U, torch.eye(5, dtype=V.dtype))
    torch.testing.assert_close(Z.mT @ Z, torch.eye(5, dtype=V.dtype))


@SHAPES
def test_triplets_of_a_factored_matrix_are_those_of_its_product(shape, rng):
    U, Z = draw(rng, shape[0], 5), draw(rng, shape[1], 5)
    V = LowRank(U, Z, torch.zeros((), dtype=U.dtype))
    expected = gram_svd(Dense(U @ Z.mT), 4)
    for V_ in (V, sketch(V, 5, rng)):  # the left factor of a sketch is orthonormal already
        A, S, B = lowrank_svd(V_, 4)
        torch.testing.assert_close(S, expected[1])
        torch.testing.assert_close((A * S) @ B.mT, (expected[0] * S) @ expected[2].mT)


# Rotated


@pytest.mark.parametrize("n_steps", [1, 30])
@pytest.mark.parametrize("batch", [(), (3,)], ids=str)
def test_rotation_is_orthogonal(batch, n_steps, rng):
    R = rotations(draw(rng, *batch, 20, 4) - 0.5, rng, n_steps=n_steps, n_tries=2)
    torch.testing.assert_close(R.mT @ R, torch.eye(4, dtype=R.dtype).expand_as(R.mT @ R))


def test_rotations_come_by_what_they_leave_below_zero(rng):
    X = draw(rng, 3, 40, 6) - 0.3
    R = rotations(X, rng, n_steps=5, n_tries=6)
    negative = (X @ R).clamp(max=0).square().sum(dim=(-2, -1))
    assert (negative.diff(dim=0) >= -1e-6).all()


def test_rotation_finds_the_nonnegative_orthant_again(rng):
    X = draw(rng, 200, 4) * (draw(rng, 200, 4) > 0.5)
    turned = X @ torch.linalg.qr(torch.randn(4, 4, generator=rng, dtype=X.dtype)).Q
    back = turned @ rotations(turned, rng, n_steps=200, n_tries=4)[0]
    assert back.clamp(max=0).norm() < 1e-3 * X.norm()


def test_one_rotation_is_enough_for_many_components(rng):
    problem = Problem(Dense(draw(rng, 30, 20)), 6)
    assert len(Rotated().candidates(problem, rng)) == Rotated().n_tries
    assert len(Rotated(many=6).candidates(problem, rng)) == 1


def test_rotated_start_draws_from_the_generator_alone(rng):
    problem = Problem(Dense(draw(rng, 9, 6)), 3)
    a, b, c = (Rotated()(problem, torch.Generator().manual_seed(seed)) for seed in (5, 5, 6))
    assert torch.equal(a.W, b.W)
    assert not torch.equal(a.W, c.W)


def test_rotated_start_may_look_at_some_rows_alone(rng):
    problem = Problem(Dense(draw(rng, 60, 3) @ draw(rng, 3, 40)), 3)
    part = Rotated(n_rows=50)(problem, rng)
    assert problem.rmse(part) < 0.1 * problem.rmse(Random()(problem, rng))


def test_components_beyond_the_sizes_are_small_and_random(rng):
    problem = Problem(Dense(draw(rng, 3, 5)), 7)
    F = draw(rng, 3, 3)
    whole = complete(F, problem, rng)
    assert whole.shape == (3, 7)
    assert torch.equal(whole[:, :3], F)
    assert (whole[:, 3:] > 0).all()
    assert (whole[:, 3:] <= (problem.mean() / 100).sqrt()).all()
    assert complete(whole, problem, rng) is whole


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
    U, S, Z = truncated_svd(Dense(draw_rough(rng, 9, 6)), 4, rng)
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


@pytest.mark.parametrize(
    "start", [Random(), NNDSVD(), NNDSVD(fill=1.0), Rotated(), Merged()], ids=repr
)
@pytest.mark.parametrize(
    ("m", "n", "rank"), [(3, 5, 7), (1, 6, 2), (6, 1, 1), (1, 1, 1), (1, 1, 3)], ids=str
)
def test_start_is_feasible_where_the_rank_exceeds_the_sizes(start, m, n, rank, rng):
    V = draw(rng, m, n)
    problem = Problem(Dense(V), rank)
    x = start(problem, rng)
    assert (x.W.shape, x.H.shape) == ((m, rank), (n, rank))
    assert all((F >= 0).all() and F.isfinite().all() for F in x)


@pytest.mark.parametrize(
    "start", [Random(), NNDSVD(), NNDSVD(fill=1.0), Rotated(), Merged()], ids=repr
)
@pytest.mark.parametrize("rank", [2, 6])
def test_start_at_a_matrix_of_zeros_fits_it(start, rank, rng):
    problem = Problem(Dense(torch.zeros(4, 5)), rank)
    x = start(problem, rng)
    assert all(F.isfinite().all() for F in x)
    assert problem.objective(x) == 0


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
    assert problem.objective(NNDSVD()(problem, rng)) < 1e-20


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
        (Merged(), 3),
        (Merged(), 9),
        (Rotated(), 3),
        (Rotated(), 9),
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


@pytest.mark.parametrize("rank", [1, 4, 40])
def test_product_of_the_random_start_has_the_mean_of_the_matrix(rank, rng):
    problem = Problem(Dense(9 * draw(rng, 400, 300)), rank)
    W, H = Random()(problem, rng)
    torch.testing.assert_close((W @ H.mT).mean(), problem.mean(), rtol=0.1, atol=0)


def test_random_start_depends_on_the_generator_alone(rng):
    problem = Problem(Dense(draw(rng, 9, 6)), 3)
    a, b = (Random()(problem, torch.Generator().manual_seed(5)) for _ in range(2))
    c = Random()(problem, torch.Generator().manual_seed(6))
    assert torch.equal(a.W, b.W)
    assert not torch.equal(a.W, c.W)


def test_given_start_is_what_was_given(rng):
    x0 = Factors(draw(rng, 9, 3), draw(rng, 6, 3))
    assert Given(x0)(Problem(Dense(draw(rng, 9, 6)), 3), rng) is x0


# Merged components


def test_a_component_in_pieces_is_put_together_again(rng):
    W, H = draw(rng, 9, 3), draw(rng, 7, 3)
    pieces = Factors(torch.cat([0.3 * W, 1.4 * W], dim=-1), torch.cat([H, 0.5 * H], dim=-1))
    whole = merge(pieces, 3)
    torch.testing.assert_close(whole.W @ whole.H.mT, pieces.W @ pieces.H.mT)


def test_the_nearest_pair_is_that_of_least_second_singular_value(rng):
    x = Factors(draw(rng, 9, 5), draw(rng, 7, 5))
    kept = merge(x, 4)
    second = {
        (i, j): torch.linalg.svdvals(x.W[:, [i, j]] @ x.H[:, [i, j]].mT)[1].item()
        for i in range(5)
        for j in range(i + 1, 5)
    }
    i, j = min(second, key=second.__getitem__)
    alone = [c for c in range(5) if c not in (i, j)]
    products = {c: torch.outer(x.W[:, c], x.H[:, c]) for c in alone}
    after = [torch.outer(w, h) for w, h in zip(kept.W.mT, kept.H.mT, strict=True)]
    for product in products.values():
        assert min((product - other).norm() for other in after) < 1e-9


def test_merged_components_fit_about_as_well_as_before(rng):
    problem = Problem(Dense(draw(rng, 30, 4) @ draw(rng, 4, 20)), 4)
    assert problem.rmse(Merged()(problem, rng)) < 0.5 * problem.rmse(Random()(problem, rng))


def test_merging_takes_components_of_zeros_first(rng):
    x = Factors(draw(rng, 9, 4), draw(rng, 7, 4))
    x.W[:, 2] = 0
    kept = merge(x, 3)
    torch.testing.assert_close(kept.W @ kept.H.mT, x.W @ x.H.mT)


def test_a_stack_is_merged_like_its_members(rng):
    x = Factors(draw(rng, 3, 9, 6), draw(rng, 3, 7, 6))
    stack = merge(x, 4)
    for k in range(3):
        alone = merge(Factors(x.W[k], x.H[k]), 4)
        torch.testing.assert_close((stack.W[k], stack.H[k]), (alone.W, alone.H))
