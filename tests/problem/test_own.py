"""A loss, or a penalty, of one's own is one class: solvers, scaling and the estimator take it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import torch
from sklearn.base import clone

from factormer import NMF, Result, factorize
from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.losses import Beta, Loss
from factormer.penalties import L1, L2, Penalties, Penalty, Simplex
from factormer.problem.problem import Problem

draw = np.random.default_rng(0)
V = draw.gamma(1.0, 1.0, (14, 3)) @ draw.gamma(1.0, 1.0, (3, 11)) + draw.random((14, 11))


@dataclass(frozen=True)
class LogCosh(Loss):
    """s² log cosh((y − v)/s): squares of small errors, sizes of large ones."""

    s: float = 1.0

    def __call__(self, v, y):
        u = ((y - v) / self.s).abs()
        return self.s**2 * (u + torch.log1p((-2 * u).exp()) - np.log(2))

    def slope(self, v, y):
        return self.s * ((y - v) / self.s).tanh()

    def curvature(self, v, y):
        return 1 - ((y - v) / self.s).tanh().square()

    @property
    def has_unit(self) -> bool:
        return True

    def scaled(self, c: float) -> LogCosh:
        return LogCosh(self.s / c)


@dataclass(frozen=True)
class Ramp(Penalty):
    """weight·Σ(X − above)₊."""

    weight: Any
    above: float
    order: ClassVar[int | None] = 0
    degree: ClassVar[int] = 1

    def value(self, X):
        return self.weight * (X - self.above).clamp(min=0).sum(dim=(-2, -1))

    def prox(self, X, t):
        lower = X - self.weight * t
        return torch.where(self.above >= X, X, lower.clamp(min=self.above))

    def scaled(self, c: float, power: float, p: float = 0.5, level: float = 1.0) -> Penalty:
        term = super().scaled(c, power, p, level)
        assert isinstance(term, Ramp)
        return replace(term, above=self.above / c**p)


@dataclass(frozen=True, eq=False)
class Near(Penalty):
    """½·weight·‖X − target‖²: quadratic, so part of the normal equations."""

    weight: Any
    target: Any
    degree: ClassVar[int] = 2

    def value(self, X):
        return self.weight / 2 * (X - self.target.to(X)).square().sum(dim=(-2, -1))

    def quadratic(self, X):
        identity = torch.eye(X.shape[-1], dtype=X.dtype, device=X.device)
        return self.weight * identity, self.weight * self.target.to(X), 0.0

    def scaled(self, c: float, power: float, p: float = 0.5, level: float = 1.0) -> Penalty:
        term = super().scaled(c, power, p, level)
        assert isinstance(term, Near)
        return replace(term, target=self.target / c**p)


def total(W: np.ndarray, H: np.ndarray, s: float, data: np.ndarray = V) -> np.ndarray:
    return s**2 * np.log(np.cosh((W @ H.T - data) / s))


LOSS = LogCosh(0.5)
MANY: Any = {"max_iter": 60, "tol": 0.0}


def polished(problem: Problem, x: Factors) -> float:
    """The objective that a general optimiser comes to from x."""
    m = x.W.numel()

    def value(flat: np.ndarray) -> tuple[float, np.ndarray]:
        z = torch.tensor(flat, requires_grad=True)
        objective = problem.objective(Factors(z[:m].view_as(x.W), z[m:].view_as(x.H)))
        (gradient,) = torch.autograd.grad(objective, z)
        return float(objective.detach()), gradient.numpy()

    flat = torch.cat([F.reshape(-1) for F in x]).numpy()
    return scipy.optimize.minimize(value, flat, jac=True, bounds=[(0, None)] * len(flat)).fun


@pytest.mark.parametrize("solver", ["auto", "mu", "mu-extrapolated", "ao-admm"])
def test_own_loss_is_minimised(solver):
    result = factorize(V, 3, loss=LOSS, solver=solver, **MANY)
    assert result.loss == pytest.approx(total(result.W, result.H, 0.5).sum())
    problem = Problem(Dense(torch.from_numpy(V)), 3, LOSS)
    assert result.loss <= (1.3 if solver == "mu" else 1.1) * polished(problem, result.factors)


def test_own_loss_takes_sparse_unknown_stacked_and_penalised_data():
    sparse = scipy.sparse.csr_array(V * (V > 4))
    one = factorize(sparse, 3, loss=LOSS, max_iter=20)
    same = factorize(sparse.toarray(), 3, loss=LOSS, max_iter=20, init="custom", W=one.W, H=one.H)
    assert same.loss <= one.loss * (1 + 1e-9)
    mask = draw.random(V.shape) > 0.2
    known = factorize(V, 3, loss=LOSS, mask=mask, max_iter=20)
    assert known.loss == pytest.approx(total(known.W, known.H, 0.5)[mask].sum())
    stack = factorize(np.stack([V, V[::-1]]), 3, loss=LOSS, max_iter=20)
    assert np.isfinite(stack.loss).all()
    for term in (L1(0.1), Simplex(), Ramp(0.5, 0.2)):
        result = factorize(V, 3, loss=LOSS, regularize_H=term, max_iter=20)
        penalty = float(term.value(torch.as_tensor(result.H)))
        assert result.loss == pytest.approx(total(result.W, result.H, 0.5).sum() + penalty)


def test_own_loss_does_not_depend_on_the_unit():
    one = factorize(V, 3, loss=LOSS, max_iter=30, tol=0)
    unit = 2.0**20  # which changes no digit: iterations amplify the last one
    far = factorize(unit * V, 3, loss=LogCosh(0.5 * unit), max_iter=30, tol=0)
    assert far.loss == pytest.approx(unit**2 * one.loss)
    np.testing.assert_allclose(far.W @ far.H.T, unit * one.W @ one.H.T, rtol=1e-6)


def test_estimator_takes_an_own_loss(tmp_path):
    model: Any = clone(NMF(3, beta_loss=LOSS, max_iter=20, tol=1e-3))
    W = model.fit_transform(V)
    H = model.components_.T
    assert model.reconstruction_err_ == pytest.approx(np.sqrt(2 * total(W, H, 0.5).sum()))
    assert total(model.transform(V[:3]), H, 0.5, V[:3]).sum() <= 1.1 * total(W, H, 0.5)[:3].sum()
    with pytest.raises(ValueError, match=r"LogCosh.* cannot be saved"):
        model.save(tmp_path / "model.safetensors")
    same = NMF(3, beta_loss=Beta(1.0), max_iter=5, tol=0).fit(V)
    same.save(tmp_path / "model.safetensors")
    assert NMF.load(tmp_path / "model.safetensors").beta_loss == 1.0


@pytest.mark.parametrize(
    ("solver", "sentence"),
    [("newton", "knows only β-divergences"), ("hals", "serves only the squared error")],
)
def test_solvers_that_do_not_know_the_loss_say_so(solver, sentence):
    with pytest.raises(ValueError, match=sentence):
        factorize(V, 3, loss=LOSS, solver=solver)


@pytest.mark.parametrize("loss", [Beta(2.0), Beta(1.5), Beta(1.0), LogCosh(0.3)], ids=str)
def test_what_a_loss_need_not_write(loss, rng):
    """Parts and proximal points that follow from slope and curvature."""
    v, y = (torch.rand(30, dtype=torch.float64, generator=rng) + 0.05 for _ in range(2))
    y[:5] = v[:5]
    up, down = Loss.parts(loss, v, y)
    torch.testing.assert_close(down - up, loss.slope(v, y))
    assert bool((up >= 0).all())
    x, weight = 2 * torch.rand(30, dtype=torch.float64, generator=rng) - 0.5, 0.7
    found = Loss.prox(loss, v, x, weight)
    for vi, xi, ours in zip(v, x, found, strict=True):

        def value(z: float, vi=vi, xi=xi) -> float:
            return float(weight * loss(vi, torch.tensor(z, dtype=v.dtype)) + (z - xi) ** 2 / 2)

        best: Any = scipy.optimize.minimize_scalar(value, bounds=(1e-9, 3), options={"xatol": 1e-9})
        assert value(float(ours)) <= best.fun + 1e-9
    if isinstance(loss, Beta):
        torch.testing.assert_close((up, down), loss.parts(v, y), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(
            found, loss.prox(v, x, weight).clamp(min=0), rtol=1e-6, atol=1e-6
        )


@pytest.mark.parametrize("loss", [2.0, 1.0])
def test_own_penalty_is_minimised(loss):
    def run(c: float) -> tuple[Result, Problem]:
        on_h, on_w = Ramp(3 * c ** (loss - 0.5), 0.4 * c**0.5), L2(0.1 * c ** (loss - 1))
        problem = Problem(
            Dense(c * torch.from_numpy(V)), 3, Beta(loss), Penalties.of(on_w), Penalties.of(on_h)
        )
        return factorize(c * V, 3, loss=loss, regularize_W=on_w, regularize_H=on_h, **MANY), problem

    (result, problem), (far, _) = run(1.0), run(100.0)
    assert result.loss == pytest.approx(float(problem.objective(result.factors)))
    assert result.loss <= 1.1 * polished(problem, result.factors)
    assert far.loss == pytest.approx(100**loss * result.loss, rel=1e-6)


@pytest.mark.parametrize("data", [V, scipy.sparse.csr_array(V)], ids=["dense", "sparse"])
def test_own_quadratic_penalty_joins_the_normal_equations(data):
    target = torch.from_numpy(draw.random((11, 3)))
    result = factorize(data, 3, regularize_H=Near(1e6, target), max_iter=20, order=None)
    np.testing.assert_allclose(result.H, target, atol=1e-3)
    term = Near(0.5, target)
    result = factorize(data, 3, regularize_H=term, order=None, **MANY)
    x = Factors(torch.as_tensor(result.W), torch.as_tensor(result.H))
    misfit = ((result.W @ result.H.T - V) ** 2).sum() / 2
    assert result.loss == pytest.approx(misfit + float(term.value(x.H)))
