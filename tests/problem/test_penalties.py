"""Penalties: each proximal step is the least point that a general optimiser finds."""

import math
from functools import partial

import numpy as np
import pytest
import scipy.optimize
import torch

from factormer.penalties import (
    L1,
    L2,
    Bounds,
    Fixed,
    Free,
    Group,
    Orthogonal,
    Penalties,
    Simplex,
    Smooth,
    Volume,
    onto_simplex,
)

T = torch.tensor(0.7, dtype=torch.float64)
STEPS = {
    "nothing": [],
    "L1": [L1(0.5)],
    "Group-rows": [Group(0.4, by="rows")],
    "Group-columns": [Group(0.4, by="columns")],
    "L1-Group": [L1(0.2), Group(0.3, by="rows")],
    "Bounds": [Bounds(0.1, 0.5)],
    "Free-L1": [Free(), L1(0.3)],
    "Simplex": [Simplex()],
    "Simplex-columns": [Simplex(2.0, by="columns")],
}


def excess(z: np.ndarray, axis: int, total: float) -> np.ndarray:
    return z.reshape(3, 2).sum(axis) - total


@pytest.mark.parametrize("terms", STEPS.values(), ids=STEPS.keys())
def test_prox_is_the_least_point(terms, rng):
    X = torch.randn(3, 2, dtype=torch.float64, generator=rng)
    on = Penalties.of(terms)
    Z = on.prox(X, T)

    def value(z: np.ndarray) -> float:
        Y = torch.from_numpy(z.reshape(3, 2))
        return float((Y - X).square().sum() / 2 + T * on.value(Y))

    low, high = (None, None) if not on.nonnegative else (0, None)
    if any(isinstance(t, Bounds) for t in terms):
        low, high = 0.1, 0.5
    sums = []
    for term in terms:
        if isinstance(term, Simplex):
            axis = 1 if term.by == "rows" else 0
            sums = [{"type": "eq", "fun": partial(excess, axis=axis, total=term.total)}]
    start = np.full(6, 0.3)
    found = scipy.optimize.minimize(
        value, start, method="SLSQP", bounds=[(low, high)] * 6, constraints=sums, tol=1e-14
    )
    assert value(Z.numpy().ravel()) <= found.fun + 1e-6
    np.testing.assert_allclose(Z.numpy().ravel(), found.x, atol=2e-3)


def test_projection_onto_the_simplex(rng):
    X = 3 * torch.randn(50, 7, dtype=torch.float64, generator=rng)
    Z = onto_simplex(X, 1.0)
    torch.testing.assert_close(Z.sum(dim=1), torch.ones(50, dtype=torch.float64))
    assert (Z >= 0).all()
    torch.testing.assert_close(onto_simplex(Z, 1.0), Z)


@pytest.mark.parametrize(
    "terms", [[L2(0.3), Orthogonal(0.7), Smooth(0.2)], [Volume(0.4, 0.2), L2(0.1)]], ids=str
)
def test_quadratic_part_bounds_the_penalties_and_touches_them(terms, rng):
    X, Y = (torch.rand(5, 3, dtype=torch.float64, generator=rng) for _ in range(2))
    on = Penalties.of(terms)
    A, L, mu = on.quadratic(X)

    def bound(Z: torch.Tensor) -> float:
        rough = mu / 2 * Z.diff(dim=0).square().sum()
        return float(((Z @ A) * Z).sum() / 2 - (L * Z).sum() + rough)

    gap = float(on.value(X)) - bound(X)
    assert float(on.value(Y)) <= bound(Y) + gap + 1e-12


@pytest.mark.parametrize(
    "term",
    [L1(0.5), L2(0.5), Group(0.5), Smooth(0.5), Orthogonal(0.5), Volume(0.5, 0.3)],
    ids=lambda t: type(t).__name__,
)
def test_unit_of_the_factor(term, rng):
    X, c, beta = torch.rand(4, 3, dtype=torch.float64, generator=rng), 2.5, 1.5
    torch.testing.assert_close(term.scaled(c, beta).value(X), term.value(c**0.5 * X) / c**beta)
    assert Bounds(1.0, 4.0).scaled(4.0, 2.0) == Bounds(0.5, 2.0)
    assert Simplex(4.0).scaled(4.0, 2.0) == Simplex(2.0)


NO_WEIGHTS = ["a", "1", math.inf, -math.inf, math.nan, -1, None, [1.0], 1j, 10**400]


@pytest.mark.parametrize("value", NO_WEIGHTS, ids=lambda value: f"{value!r:.10}")
def test_what_is_no_weight_gets_a_sentence(value):
    optional = [] if value is None else [Volume]  # which may go without a weight
    for kind in (L1, L2, Smooth, Orthogonal, Group, *optional):
        name = kind.__name__
        with pytest.raises(ValueError, match=rf"{name} has weight .*; it must be at least 0, and"):
            kind(value)
    with pytest.raises(ValueError, match=r"Simplex has total .*; it must be from 1e-100 to 1e100"):
        Simplex(value)
    if value in (-1, -math.inf):
        return
    with pytest.raises(ValueError, match=r"Bounds has low .*; it must be a number, or -inf"):
        Bounds(value, math.inf)
    if value != math.inf:
        with pytest.raises(ValueError, match=r"Bounds has high .*; it must be a number, or inf"):
            Bounds(0.0, value)


@pytest.mark.parametrize(
    ("columns", "at", "sentence"),
    [
        (["a"], [True], "columns that are not an array"),
        (None, [True], "columns that are not an array"),
        ([[1.0, 2.0], [3.0]], [True], "columns that are not an array"),
        ([[math.nan]], [True], "columns that are NaN or infinite"),
        ([[1.0]], ["a"], "at that are not an array"),
    ],
)
def test_columns_that_are_none_get_a_sentence(columns, at, sentence):
    with pytest.raises(ValueError, match=f"Fixed has {sentence}"):
        Fixed(columns, at)


def test_wrong_penalties_get_a_sentence():
    with pytest.raises(ValueError, match="at least 0"):
        L1(-1.0)
    with pytest.raises(ValueError, match="choose 'rows' or 'columns'"):
        Group(1.0, by="both")
    with pytest.raises(ValueError, match="swap them"):
        Bounds(2.0, 1.0)
    with pytest.raises(ValueError, match="from 1e-100 to 1e100"):
        Simplex(0.0)
    with pytest.raises(ValueError, match="at most one of each kind"):
        Penalties.of([L1(1.0), L1(2.0)])
    with pytest.raises(ValueError, match="no closed form"):
        Penalties.of([Simplex(), L1(1.0)])
    with pytest.raises(ValueError, match=r"of factormer\.penalties"):
        Penalties.of(0.1)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("total", [1e-20, 1.0, 1e15])
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e18])
def test_sums_hold_whatever_is_projected(total, size, rng):
    X = size * torch.randn(5, 7, generator=rng, dtype=torch.float32)
    Z = onto_simplex(X, total)
    assert (Z >= 0).all()
    np.testing.assert_allclose(Z.double().sum(dim=-1), total, rtol=1e-5)


@pytest.mark.parametrize(
    ("term", "c", "p"),
    [
        (L2(1.0), 1e-26, 0.0),
        (L1(30.0), 1e-38, 0.5),
        (Simplex(1.0), 1e38, 0.5),
        (Simplex(1e30), 1.0, 0.5),
        (Bounds(0.0, 1e-20), 1.0, 0.0),
        (Fixed(torch.full((3, 1), 1e25), torch.tensor([True, False])), 1.0, 0.0),
    ],
)
def test_a_penalty_beyond_the_precision_gets_a_sentence(term, c, p):
    with pytest.raises(ValueError, match=f"{type(term).__name__}.* too large or too small for"):
        Penalties.of(term).scaled(c, 2.0, p, dtype=torch.float32)
    assert Penalties.of(term).scaled(c, 2.0, p).terms  # which float64 can do


def test_bounds_may_be_infinite_and_zero():
    assert Penalties.of(Bounds(0.0, math.inf)).scaled(1e30, 2.0, dtype=torch.float32).terms


def test_overlap_is_told_beside_squares_that_are_far_larger():
    X = torch.tensor([[1.0, 1e-17], [2.0, 1e-17]], dtype=torch.float64)
    assert float(Orthogonal(3.0).value(X)) == pytest.approx(9e-17, rel=1e-9, abs=0)


@pytest.mark.parametrize("signed", [Free(), Bounds(-1.0, 1.0)])
def test_overlap_of_entries_of_either_sign_is_refused(signed):
    with pytest.raises(ValueError, match="Orthogonal is for factors without negative entries"):
        Penalties.of([Orthogonal(1.0), signed])


def test_a_penalty_of_weight_zero_asks_for_nothing():
    assert Penalties.of([Group(0.0, by="rows"), L2(0.1)]).elastic == (0.0, 0.1)
    assert Penalties.of(L1(0.0)).is_plain


@pytest.mark.parametrize("by", ["rows", "columns"])
def test_what_is_brought_onto_a_simplex_keeps_its_proportions(by, rng):
    X = 1e30 * (torch.rand(4, 3, dtype=torch.float64, generator=rng) + 0.01)
    inside = Penalties.of(Simplex(0.01, by=by)).inside(X)
    sums = inside.sum(dim=1 if by == "rows" else 0)
    np.testing.assert_allclose(sums, np.full(len(sums), 0.01))
    assert bool((inside > 0).all())


def test_volume_is_that_of_the_literal_determinant(rng):
    """The slow twin: the product of 1 + σ²/δ over the singular values σ."""
    X = torch.rand(6, 3, dtype=torch.float64, generator=rng)
    sizes = np.linalg.svd(X.numpy(), compute_uv=False) ** 2
    expected = 0.5 * 0.7 * math.log(np.prod(1 + sizes / 0.2))
    assert float(Volume(0.7, 0.2).value(X)) == pytest.approx(expected)
    with pytest.raises(ValueError, match=r"Volume has delta 0.*; it must be from 1e-100 to 1e100"):
        Volume(1.0, 0.0)
    with pytest.raises(ValueError, match="is too large or too small for V of mean"):
        Volume(1.0).scaled(1e300, 2.0)
