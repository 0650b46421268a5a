"""β-divergences: scikit-learn's values, slopes by differentiation, proximal points by search."""

import numpy as np
import pytest
import scipy.optimize
import torch
from sklearn.decomposition._nmf import _beta_divergence
from torch import Tensor

from factormer.problem.losses import NAMES, Beta, as_loss

BETAS = [-0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0]
each_beta = pytest.mark.parametrize("beta", BETAS)


def draw(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=rng) + 0.1


@each_beta
def test_value_is_scikit_learns(beta, rng):
    V, W, H = draw(rng, 5, 4), draw(rng, 5, 2), draw(rng, 4, 2)
    ours = Beta(beta)(V, W @ H.mT).sum()
    theirs = _beta_divergence(V.numpy(), W.numpy(), H.mT.numpy(), beta)
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)


@each_beta
def test_slope_is_the_derivative(beta, rng):
    v, y = draw(rng, 20), draw(rng, 20).requires_grad_()
    (slope,) = torch.autograd.grad(Beta(beta)(v, y).sum(), y)
    torch.testing.assert_close(Beta(beta).slope(v, y), slope)
    up, down = Beta(beta).parts(v, y)
    torch.testing.assert_close(down - up, slope)


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("x", [-2.0, 0.0, 0.3, 4.0])
def test_prox_is_the_least_point(beta, x):
    v, weight = torch.tensor(0.7, dtype=torch.float64), 0.6
    y = Beta(beta).prox(v, torch.tensor(x, dtype=torch.float64), weight)

    def value(z: float) -> float:
        return (
            float(weight * Beta(beta)(v, torch.tensor(z, dtype=torch.float64))) + (z - x) ** 2 / 2
        )

    found = scipy.optimize.minimize_scalar(value, bounds=(1e-9, 10), options={"xatol": 1e-10})
    assert value(float(y)) <= float(found.fun) + 1e-9


def test_zero_entries_and_zero_fits_are_finite():
    v, y = torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.0, 1.0, 0.0])
    assert Beta(1.0)(v, y).isfinite().all()
    assert Beta(1.0)(v, y)[1] == 1


@each_beta
def test_unit_of_the_data(beta, rng):
    v, y, c = draw(rng, 9), draw(rng, 9), 3.7
    torch.testing.assert_close(Beta(beta)(c * v, c * y), c**beta * Beta(beta)(v, y))


@each_beta
def test_curvature_is_the_slope_of_the_slope(beta, rng):
    v, y = draw(rng, 9), draw(rng, 9).requires_grad_()
    (curvature,) = torch.autograd.grad(Beta(beta).slope(v, y).sum(), y)
    torch.testing.assert_close(Beta(beta).curvature(v, y), curvature)


def test_names():
    assert {name: as_loss(name).degree for name in NAMES} == NAMES
    assert as_loss(0.5).degree == 0.5
    assert [as_loss(b).degree for b in (1 - 4e-16, -2e-16, 2 + 1e-12, 1.0001)] == [1, 0, 2, 1.0001]
    assert [as_loss(short) for short in ("fro", "kl", "is")] == [Beta(2.0), Beta(1.0), Beta(0.0)]
    for wrong in ("hinge", None, True, float("nan")):
        with pytest.raises(ValueError, match="choose 'frobenius'"):
            as_loss(wrong)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_zero_entry_under_a_huge_fit_costs_the_fit(dtype):
    y = torch.tensor([1e10, 1e30], dtype=dtype)
    torch.testing.assert_close(Beta(1.0)(torch.zeros_like(y), y), y)
