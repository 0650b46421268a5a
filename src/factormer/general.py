"""From data, loss, weights and penalties to a problem, a start and a solver (docs/losses.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from factormer import presets
from factormer.accelerate.base import Restarted
from factormer.accelerate.extrapolate import Extrapolation
from factormer.accelerate.her import HER
from factormer.factors import Factors
from factormer.initialize import Initializer
from factormer.kernels import newton_rows
from factormer.losses import Beta
from factormer.matrix import Matrix, Observed
from factormer.objective import Objective
from factormer.observations import check_zeros
from factormer.penalties import Penalties
from factormer.problem import Problem
from factormer.solve import Result, Stage, Status, StopRule, any_of, solve_in_stages
from factormer.solvers.base import Solver
from factormer.solvers.elastic import ElasticHALS
from factormer.solvers.multiplicative import Multiplicative
from factormer.solvers.newton import Newton
from factormer.solvers.proximal import ProximalADMM
from factormer.solvers.symmetric import Symmetric
from factormer.trace import Row, Trace
from factormer.validate import check_mean

_SMALL = 20_000  # stored entries up to which a start is first fitted by least squares
_HEAVY = 2e7  # multiplications of a half-step from which float32 is worth its compilation

SOLVERS: dict[str, Callable[[], Solver[Any]]] = {
    "newton": lambda: Restarted(Newton(), Extrapolation()),
    "mu": Multiplicative,
    "mu-extrapolated": lambda: Restarted(Multiplicative(floor=1e-10), Extrapolation()),
    "hals": lambda: Restarted(ElasticHALS(), Extrapolation()),
    "ao-admm": ProximalADMM,
}


def objective(
    V: Matrix, rank: int, loss: Beta, on_w: Penalties, on_h: Penalties
) -> Objective | None:
    """The problem, or None where it is plain least squares, which others solve."""
    check_zeros(V, loss)
    plain = loss.beta == 2 and on_w.is_plain and on_h.is_plain and not isinstance(V, Observed)
    return None if plain else Objective(V, rank, loss, on_w, on_h)


def solver(name: str, problem: Objective) -> Solver[Any]:
    """The solver of that name; "auto" is the fastest of those that can."""
    if name == "auto":
        name = _auto_solver(problem)
    if name not in SOLVERS:
        raise ValueError(
            f"solver is {name!r}; with this loss, weights or penalties choose one of "
            f"{', '.join(['auto', *SOLVERS])}"
        )
    if name in ("hals", "newton", "mu", "mu-extrapolated") and not _is_elastic(problem):
        raise ValueError(
            f"solver is {name!r}, which takes L1 and L2 alone as penalties; use 'ao-admm'"
        )
    if name == "newton" and newton_rows() is None:
        raise ValueError("solver='newton' needs numba: pip install numba, or use solver='mu'")
    return SOLVERS[name]()


def _is_elastic(problem: Objective) -> bool:
    return problem.on_w.elastic is not None and problem.on_h.elastic is not None


def _auto_solver(problem: Objective) -> str:
    V = problem.V
    if not _is_elastic(problem):
        return "ao-admm"
    if problem.divergence.beta == 2 and not isinstance(V, Observed):
        return "hals"
    one = len(V.shape) == 2 and V.device.type == "cpu"
    return "newton" if one and newton_rows() is not None else "mu-extrapolated"


def symmetric(V: Matrix) -> Solver[Any]:
    """The solver of V ≈ H Hᵀ."""
    m, n = V.shape[-2:]
    if m != n or float((V.total() - V.T.total()).abs().max()) > 0:
        raise ValueError(f"symmetric=True needs a square V with V = Vᵀ; V has shape {(m, n)}")
    probe = torch.linspace(0, 1, n, dtype=V.dtype, device=V.device)[:, None]
    probe = probe.expand(*V.shape[:-2], n, 1).contiguous()
    there, back = V @ probe, V.T @ probe
    if not torch.allclose(there, back, rtol=1e-4, atol=1e-4 * float(there.abs().max())):
        raise ValueError("symmetric=True needs V = Vᵀ, and V is not: pass (V + Vᵀ) / 2")
    return Symmetric()


@dataclass(frozen=True)
class Lifted:
    """A start of least squares, iterated a little, without zeros: a loss may have a pole there."""

    base: Initializer
    n_iter: int = 5
    share: float = 0.01  # of the mean of a component, which entries are lifted to
    solver: HER = field(default_factory=HER)

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        x = self.base(problem, rng)
        if self.n_iter:
            state = self.solver.init(problem, x)
            state, errors = self.solver.leap(problem, state, self.n_iter)
            for _ in range(self.n_iter - len(errors)):
                state = self.solver.step(problem, state)
            x = state.factors
        lifted = (torch.maximum(F, self.share * F.mean(dim=-2, keepdim=True)) for F in x)
        return Factors(*(F + torch.finfo(F.dtype).eps * (F == 0) for F in lifted))


def initializer(name: str | Path, problem: Objective, custom: Factors | None) -> Initializer:
    """The start of that name, for the plain problem that `Objective.start` gives."""
    V, rank = problem.start().V, problem.rank
    if name == "auto" and custom is None:
        small = (
            len(V.shape) == 2 and float(V.work()) <= _SMALL and not isinstance(problem.V, Observed)
        )
        return Lifted(presets.initializer("random", V, rank), n_iter=5 if small else 0)
    base = presets.initializer(name, V, rank, custom)
    return base if custom is not None or problem.divergence.beta == 2 else Lifted(base, n_iter=0)


def in_single_precision(problem: Objective, name: str) -> Objective | None:
    """The problem in float32, to begin with, where Newton steps cost that much."""
    V = problem.V
    if name not in ("auto", "newton") or V.dtype != torch.float64 or len(V.shape) > 2:
        return None
    if (name == "auto" and _auto_solver(problem) != "newton") or V.device.type != "cpu":
        return None
    if float(V.work()) * problem.rank**2 < _HEAVY:
        return None
    on = (problem.on_w, problem.on_h)
    return Objective(V.to(torch.float32), problem.rank, problem.divergence, *on)


@dataclass(frozen=True)
class Slowing:
    """Stop once an iteration lowers the objective by no more than `share` of it."""

    share: float = 1e-4

    def __call__(self, problem: Problem, x: Factors, trace: Trace) -> Status | None:
        if len(trace) < 4:
            return None
        before, now = trace.rows[-3].rmse ** 2, trace.rows[-1].rmse ** 2
        return Status.CONVERGED if bool((before - now <= 2 * self.share * before).all()) else None


def run(
    problem: Problem,
    *,
    init: str | Path,
    name: str,
    custom: Factors | None,
    is_symmetric: bool,
    rules: list[StopRule],
    max_iter: int,
    rng: torch.Generator,
    started: float,
    callback: Callable[[Row], object] | None,
) -> Result:
    """Solve, in the unit of V."""
    beta = problem.divergence.beta if isinstance(problem, Objective) else 2.0
    scaled, mean = problem.normalized()
    check_mean(mean)
    unit = mean ** (beta / 2)
    x0 = None if custom is None else custom.scale(1 / mean)
    if is_symmetric:
        engine = symmetric(scaled.V)
        start = presets.initializer("random" if init == "auto" else init, scaled.V, scaled.rank, x0)
        W, H = start(scaled, rng)
        x0 = Factors((W + H) / 2, (W + H) / 2)
    else:
        assert isinstance(scaled, Objective)
        engine = solver(name, scaled)
        x0 = initializer(init, scaled, x0)(scaled.start(), rng)
    stages = [Stage(scaled, engine, max_iter, any_of(*rules))]
    single = in_single_precision(scaled, name) if isinstance(scaled, Objective) else None
    if single is not None:
        stages.insert(0, Stage(single, engine, max_iter, any_of(*rules, Slowing())))
    result = solve_in_stages(
        stages,
        x0,
        started=started,
        callback=callback and (lambda row: callback(row._replace(rmse=unit * row.rmse))),
    )
    return replace(
        result,
        factors=result.factors.scale(mean),
        trace=result.trace.scaled(unit),
        error=unit * result.error,
    )
