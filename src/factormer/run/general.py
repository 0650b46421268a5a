"""From data, loss, weights and penalties to a problem, a start and a solver (docs/losses.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.accelerate.base import Restarted
from factormer.accelerate.extrapolate import Extrapolation
from factormer.accelerate.her import HER
from factormer.accelerate.newton import ExtrapolatedNewton
from factormer.data import Dense, Matrix, Observed
from factormer.data.factors import Factors, where
from factormer.data.intake import check_mean, check_start, check_unit
from factormer.kernels.threads import threads
from factormer.problem.losses import Beta
from factormer.problem.objective import Objective, check_zeros
from factormer.problem.penalties import Fixed, Penalties
from factormer.problem.problem import Problem
from factormer.run import presets
from factormer.run.solve import (
    Result,
    Stage,
    Stationary,
    Status,
    StopRule,
    TimeBudget,
    Watch,
    any_of,
    solve,
    solve_in_stages,
    watched,
)
from factormer.run.trace import Row, Trace
from factormer.solvers.base import Solver
from factormer.solvers.coding import Coder
from factormer.solvers.elastic import ElasticHALS
from factormer.solvers.multiplicative import Multiplicative
from factormer.solvers.newton import Newton, can_step, is_plain_kullback
from factormer.solvers.proximal import ProximalADMM
from factormer.solvers.symmetric import Symmetric
from factormer.starts.initialize import Given, Initializer

_SMALL = 20_000  # stored entries up to which a start is first fitted by least squares
_EXACT, _PATIENCE = 1e-8, 500  # fall of the projected gradient, and iterations, to end coding at
_HEAVY = 2e7  # multiplications of a half-step from which float32 is worth its compilation

_BOLD = Extrapolation(gamma=1.1)  # fewer iterations on dense counts, more on sparse ones

SOLVERS: dict[str, Callable[[], Solver[Any]]] = {
    "newton": ExtrapolatedNewton,
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
    for name, on, size in (("W", on_w, V.shape[-2]), ("H", on_h, V.shape[-1])):
        if on.fixed is not None and (len(on.fixed.columns), len(on.fixed.at)) != (size, rank):
            raise ValueError(
                f"Fixed columns of {name} have {len(on.fixed.columns)} entries, in "
                f"{len(on.fixed.at)} places; here {name} is {size}×{rank}"
            )
    plain = loss.beta == 2 and on_w.is_plain and on_h.is_plain and not isinstance(V, Observed)
    return None if plain else Objective(V, rank, loss, on_w, on_h)


def solver(name: str, problem: Objective) -> Solver[Any]:
    """The solver of that name; "auto" is the fastest of those that can."""
    name = _auto_solver(problem) if name == "auto" else presets.ALIASES.get(name, name)
    if name not in SOLVERS:
        raise ValueError(
            f"solver is {name!r}; with this loss, weights or penalties choose one of "
            f"{', '.join(['auto', *SOLVERS, *presets.ALIASES])}"
        )
    if name in ("hals", "newton", "mu", "mu-extrapolated") and not _is_elastic(problem):
        raise ValueError(
            f"solver is {name!r}, which takes L1 and L2 alone as penalties; use 'ao-admm'"
        )
    if name == "hals" and isinstance(problem.V, Observed):
        raise ValueError(
            "solver is 'hals', which serves data that are all known and count alike; with mask, "
            "weights, sigma, missing or NaN choose 'auto', 'newton', 'mu' or 'mu-extrapolated'"
        )
    if name == "newton" and not can_step(problem):
        raise ValueError("solver='newton' needs numba: pip install numba, or use solver='mu'")
    if name == "newton" and is_plain_kullback(problem) and len(problem.V.shape) == 2:
        small = float(problem.V.work()) <= _SMALL
        return ExtrapolatedNewton(Newton(n_sweeps=8 if small else 4), _BOLD)
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
    return "newton" if one and can_step(problem) else "mu-extrapolated"


def symmetric(name: str, V: Matrix) -> Solver[Any]:
    """The solver of V ≈ H Hᵀ, which is "hals" on two factors."""
    if presets.ALIASES.get(name, name) not in ("auto", "hals"):
        raise ValueError(f"solver is {name!r}; with symmetric=True choose one of auto, hals, cd")
    m, n = V.shape[-2:]
    if m != n:
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
        return Factors(*(lifted(F, self.share) for F in x))


@dataclass(frozen=True)
class Squared:
    """A start for counts, from one for their roots.

    Errors of √V are of one size everywhere, if V has counts, so least squares weigh them rightly.
    """

    base: Initializer

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        assert isinstance(problem.V, Dense)
        x = self.base(Problem(Dense(problem.V.entries.sqrt()), problem.rank), rng)
        return Factors(*(lifted(F.square()) for F in x))


def lifted(F: Float[Tensor, "*b m r"], share: float = 0.01) -> Float[Tensor, "*b m r"]:
    """F without zeros: entries of at least that share of the mean of their column."""
    F = torch.maximum(F, share * F.mean(dim=-2, keepdim=True))
    return F + torch.finfo(F.dtype).eps * (F == 0)


def initializer(name: str | Path, problem: Objective, custom: Factors | None) -> Initializer:
    """The start of that name, for the plain problem that `Objective.start` gives."""
    V, rank = problem.start().V, problem.rank
    if name == "auto" and custom is None:
        small = (
            len(V.shape) == 2 and float(V.work()) <= _SMALL and not isinstance(problem.V, Observed)
        )
        start = presets.initializer("random", V, rank)
        if small and isinstance(V, Dense) and problem.divergence.beta == 1:
            return Squared(Lifted(start, n_iter=20))
        return Lifted(start, n_iter=5 if small else 0)
    base = presets.initializer(name, V, rank, custom)
    return base if custom is not None or problem.divergence.beta == 2 else Lifted(base, n_iter=0)


def beside(problem: Objective, start: Initializer, rng: torch.Generator) -> Factors:
    """A start with the known columns in their places, and the other factor fitted to them.

    A start that was given, and one where both factors have known columns, is only put in order.
    """
    on_w, on_h, plain = problem.on_w, problem.on_h, problem.start()
    given = isinstance(start, Given)
    if not given and on_h.fixed is None and on_w.fixed is not None:
        return beside(problem.T, start, rng).swap()
    if given or on_h.fixed is None or on_w.fixed is not None:
        x = problem.taken(start(plain, rng))
        if isinstance(start, Given) and not (on_w.is_plain and on_h.is_plain):
            asis = problem.taken(start.x0)  # penalties may well want it out of proportion to V
            x = where(problem.loss(asis) <= problem.loss(x), asis, x)
        return x
    free = ~on_h.fixed.at.to(plain.V.device)
    H = torch.zeros(plain.V.shape[-1], problem.rank, dtype=plain.V.dtype, device=plain.V.device)
    if bool(free.any()):
        H[:, free] = start(Problem(plain.V, int(free.sum())), rng).H
    H = on_h.placed(H)
    W = Coder.of(H)(plain.V)
    if problem.divergence.beta == 2:
        return Factors(W, H)
    size = H.abs().amax(dim=0)
    size = torch.where(size > 0, size, 1.0)
    return Factors(lifted(W * size) / size, H)


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
    if not all(term.fits(torch.float32) for one in on for term in one.terms):
        return None
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
    watch: Watch | None,
    stride: int,
) -> Result:
    """Solve, in the unit of V."""
    beta = problem.divergence.beta if isinstance(problem, Objective) else 2.0
    scaled, mean = problem.normalized()
    check_mean(mean)
    unit = check_unit(problem.unit(mean), mean, beta)
    x0 = None if custom is None else check_start(scaled.scaled_back(custom, 1 / mean))
    if is_symmetric:
        engine = symmetric(name, scaled.V)
        start = presets.initializer("random" if init == "auto" else init, scaled.V, scaled.rank, x0)
        W, H = start(scaled, rng)
        x0 = Factors((W + H) / 2, (W + H) / 2)
    else:
        assert isinstance(scaled, Objective)
        engine = solver(name, scaled)
        x0 = beside(scaled, initializer(init, scaled, x0), rng)
    if watch is not None:
        rules = [*rules, watched(watch, mean, unit)]
    stages = [Stage(scaled, engine, max_iter, any_of(*rules))]
    single = in_single_precision(scaled, name) if isinstance(scaled, Objective) else None
    if single is not None:
        stages.insert(0, Stage(single, engine, max_iter, any_of(*rules, Slowing())))
    result = solve_in_stages(
        stages,
        x0,
        started=started,
        stride=stride,
        callback=callback and (lambda row: callback(row._replace(rmse=unit * row.rmse))),
    )
    x = scaled.scaled_back(result.factors, mean)
    if isinstance(problem, Objective):  # what is known to its last digit: the way here had fewer
        x = Factors(problem.on_w.placed(x.W), problem.on_h.placed(x.H))
    return replace(
        result,
        factors=x,
        trace=result.trace.scaled(unit),
        error=unit * result.error,
    )


def code(
    V: Matrix,
    H: Float[Tensor, "n r"],
    loss: Beta,
    on_w: Penalties,
    W: Tensor | None = None,
    *,
    until: float | None = None,
) -> Result:
    """The W that fits V ≈ W Hᵀ best for a given H: what `nnls.Coder` does where it cannot.

    The problem is that of `run` with all of H known, solved from W, or from equal coefficients,
    `until` a reading of `time.perf_counter()`. Convex for 1 ≤ β ≤ 2, where the stop rule is the
    accuracy; a local minimum otherwise.
    """
    rank = H.shape[1]
    known = Fixed(H, torch.ones(rank, dtype=torch.bool))
    asked = Objective(V, rank, loss, on_w, Penalties((known,)))
    problem, mean = asked.normalized()
    check_mean(mean)
    H = problem.on_h.placed(torch.empty_like(H))
    if W is None:
        level = (H.mean(dim=0).sum()).clamp(min=torch.finfo(H.dtype).tiny)
        W = (1 / level).expand(V.shape[0], rank).contiguous()
    else:
        W = problem.scaled_back(Factors(W, H), 1 / mean).W
    W = problem.on_w.placed(W)
    name = _auto_solver(problem)
    engine = Newton(n_sweeps=50) if name == "newton" else solver(name, problem)
    with torch.no_grad(), threads():
        rules: list[StopRule] = [Stationary(_EXACT, every=5)]
        if until is not None:
            rules.append(TimeBudget(0.0, since=until))
        x0, stop = Factors(W, H), any_of(*rules)
        patience = _PATIENCE if name == "newton" or loss.beta == 2 else _PATIENCE // 5
        result = solve(problem, engine, x0, stop=stop, max_iter=patience)
    unit, x = asked.unit(mean), problem.scaled_back(result.factors, mean)
    return replace(
        result,
        factors=Factors(on_w.placed(x.W), x.H),
        trace=result.trace.scaled(unit),
        error=unit * result.error,
    )
