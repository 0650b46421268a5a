"""The only place where a name ("ao-admm", "init-r10", "auto") becomes an object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from factormer.accelerate.anyrank import AnyRank
from factormer.accelerate.base import Accelerated, Restarted
from factormer.accelerate.cuda_graph import Replayed
from factormer.accelerate.extrapolate import Extrapolation
from factormer.accelerate.her import HER, LearnedHER
from factormer.accelerate.learned import LearnedAccelerator, LearnedInit
from factormer.accelerate.lookahead import Lookahead
from factormer.data import Dense, LowRank, Matrix, Sparse, sketch
from factormer.data.factors import Factors
from factormer.data.svd import OVERSAMPLING
from factormer.nn import zoo
from factormer.nn.anyrank import AnyRankNetwork
from factormer.problem.problem import Problem
from factormer.solvers.ao_admm import AOADMM, TraceAOADMM
from factormer.solvers.base import Solver
from factormer.solvers.hals import HALS
from factormer.solvers.multiplicative import Multiplicative
from factormer.starts.initialize import NNDSVD, Given, Initializer, Merged, Random, Rotated
from factormer.starts.separable import Separable

ANY_RANK = "any-rank"  # the network that "auto" uses
SOLVERS: dict[str, Callable[[], Solver[Any]]] = {
    "ahead": Lookahead,
    "ao-admm": AOADMM,
    "ao-admm-trace": TraceAOADMM,
    "hals": HALS,
    "her": HER,
    "her-admm": lambda: Replayed(TraceAOADMM(n_inner=10, tol=0.0, share=0.1), Extrapolation()),
    "mu": Multiplicative,
}
ALIASES = {"cd": "hals"}  # scikit-learn's coordinate descent is HALS
STARTS: dict[str, Callable[[], Initializer]] = {
    "random": Random,
    "nndsvd": NNDSVD,
    "nndsvda": lambda: NNDSVD(fill=1.0),
    "nndsvdar": lambda: NNDSVD(fill=0.01, random=True),
    "rotated": Rotated,
    "merged": Merged,
    "separable": Separable,
}
_LARGE = 20_000  # entries from which a singular value decomposition pays for a better start
_PAYS = 2.0  # times fewer multiplications that a compressed iteration must take
_WORTH = 1.5  # times the multiplications that a sketch costs, which it must save
_HEAVY = 2e6  # multiplications of a product from which float32 is faster
_REPAYS = 300.0  # entries of V for each row and column, from which a network repays its time
_LONG = 1_000_000  # entries of V below which there is too little time to save
_AHEAD = 6.0  # times the size of V̂ that V must have for iterations on V̂ to cost little
_POLISH = 4  # iterations on V itself after those on compressed data, if it comes to that


def initializer(
    name: str | Path, V: Matrix, rank: int, custom: Factors | None = None
) -> Initializer:
    """The start of that name.

    "auto" is "rotated" for one dense matrix of some size, and "nndsvd" for a stack of them. Where a
    singular value decomposition would cost more than it saves it is "merged" for sparse matrices,
    and "random" for small ones and where the rank exceeds min(m, n) (docs/engine.md).
    """
    name = _as_name("init", name)
    if (name == "custom") != (custom is not None):
        raise ValueError("init='custom' goes with W and H, and W and H go with init='custom'")
    if custom is not None:
        return Given(custom)
    if name == "auto":
        name = _auto_start(V, rank)
    if name in STARTS:
        return STARTS[name]()
    if _ships(name, use="init"):
        return LearnedInit(zoo.load_factormer(name).to(V.device))
    names = _names(["auto", *STARTS, "custom"], "init")
    raise ValueError(f"init is {name!r}; choose one of {names}")


def candidates(start: Initializer, problem: Problem, rng: torch.Generator) -> list[Factors]:
    """The points to set out from: several where a sketch makes it cheap to try them."""
    if isinstance(start, Rotated) and isinstance(problem.V, LowRank):
        return start.candidates(problem, rng)
    return [start(problem, rng)]


def _auto_start(V: Matrix, rank: int) -> str:
    *batch, m, n = V.shape
    if rank > min(m, n):
        return "random"
    if isinstance(V, Sparse):
        return "merged"
    if batch:
        return "nndsvd"
    return "rotated" if isinstance(V, LowRank) or m * n > _LARGE else "random"


def solver(name: str, accelerator: str | Path | None, problem: Problem) -> Solver[Any]:
    """The solver of that name, wrapped in the accelerator of that name.

    "auto" is "her"; "ahead" where V is large; "her-admm", which is made of matrix products alone,
    for stacks and on a GPU; with a network for one rank it is "hals" (docs/engine.md). An any-rank
    network takes the place of the extrapolation in "her" and "her-admm", and in "ahead" wherever
    no iterations are made ahead.
    """
    V = problem.V
    accelerator = None if accelerator is None else _as_name("accelerator", accelerator)
    if accelerator == "auto":
        accelerator = ANY_RANK if name == "auto" and _repays(V) else None
    plain = accelerator is None
    if accelerator is not None and not _ships(accelerator, use="accelerator"):
        names = _names(["auto", "None"], "accelerator")
        raise ValueError(f"accelerator is {accelerator!r}; choose one of {names}")
    network = None if accelerator is None else _network(accelerator, V.device)
    any_rank = isinstance(network, AnyRankNetwork)
    if name == "auto":
        products = len(V.shape) > 2 or V.device.type != "cpu"
        one = "ahead" if _looks_ahead(problem) else "her"
        name = ("her-admm" if products else one) if plain or any_rank else "hals"
    if ALIASES.get(name, name) not in SOLVERS:
        names = _names(["auto", *SOLVERS, *ALIASES])
        raise ValueError(f"solver is {name!r}; choose one of {names}")
    if name == "ahead" and len(V.shape) > 2:
        raise ValueError("solver='ahead' serves one matrix; take 'her-admm' for a stack of them")
    chosen = SOLVERS[ALIASES.get(name, name)]()
    if network is None:
        return chosen
    if isinstance(network, AnyRankNetwork):
        if isinstance(chosen, HER):
            return LearnedHER(chosen.solver, AnyRank(network))
        if isinstance(chosen, Lookahead):
            return replace(chosen, resting=AnyRank(network))
        if isinstance(chosen, Replayed):
            return Replayed(chosen.solver, AnyRank(network))
        return Restarted(chosen, AnyRank(network))
    return Accelerated(chosen, LearnedAccelerator(network))


def _network(name: str, device: torch.device) -> zoo.Network | AnyRankNetwork:
    """The network of that name; small ones that ship are loaded once."""
    if name == ANY_RANK and device.type == "cpu":
        return _shipped(name)
    return zoo.load_model(name).to(device)


@cache
def _shipped(name: str) -> AnyRankNetwork:
    return zoo.load_any_rank(name)


def _looks_ahead(problem: Problem) -> bool:
    """Whether V is so large that iterations on what its products tell of it cost little."""
    V, r = problem.V, problem.rank
    if not isinstance(V, Dense) or len(V.shape) != 2 or V.device.type != "cpu":
        return False
    m, n = V.shape
    return m * n >= _AHEAD * 2 * r * (m + n)


def _repays(V: Matrix) -> bool:
    """Whether fewer iterations on V are worth a network's time for each: it looks at m + n rows.

    Where the products with V are most of the cost; measured on a CPU, for dense data. On a GPU
    they are not (docs/anyrank.md).
    """
    if not isinstance(V, Dense) or len(V.shape) != 2 or V.device.type != "cpu":
        return False
    m, n = V.shape
    return m * n >= max(_LONG, _REPAYS * (m + n))


def compressed(
    problem: Problem, rng: torch.Generator, *, max_iter: int, read: Problem | None = None
) -> tuple[Problem, int] | None:
    """A sketch of the problem to begin with, and for how many iterations; None where V is best.

    For one dense matrix on which an iteration costs several times one on a sketch of a rank a
    little above the problem's, often enough to make up for the sketch (docs/engine.md). V may be
    `read` in a lower precision; the sketch is in its own.
    """
    V, rank = problem.V, problem.rank
    p = rank + OVERSAMPLING
    half = (max_iter + 1) // 2
    n_iter = max_iter - (half if _looks_ahead(problem) else min(_POLISH, half))
    if not isinstance(V, Dense) or len(V.shape) != 2:
        return None
    m, n = V.shape
    if p > min(m, n) or m * n <= _LARGE or m * n < _PAYS * (m + n) * p:
        return None
    saved, made = 2 * rank * (m * n - (m + n) * p), 4 * p * m * n  # an iteration, and the sketch
    if 2 * rank * saved < _WORTH * made:  # it takes about 2r iterations
        return None
    return Problem(sketch((read or problem).V, p, rng).to(V.dtype), rank), n_iter


def in_single_precision(problem: Problem) -> Problem | None:
    """The problem in float32, to begin with; None where float64 is as fast, or not asked for."""
    V = problem.V
    if V.dtype != torch.float64 or len(V.shape) > 2 or float(V.work()) * problem.rank < _HEAVY:
        return None
    return Problem(V.to(torch.float32), problem.rank)


def is_network(init: str | Path) -> bool:
    """Whether a start is learned; those look at the entries of V one by one."""
    return str(init) not in ("auto", "custom", *STARTS)


def _as_name(keyword: str, value: Any) -> str:
    if not isinstance(value, str | Path):
        raise ValueError(f"{keyword} is {value!r}; it must be a name or the path of a network")
    return str(value)


def _ships(name: str, *, use: str) -> bool:
    if name.endswith(".safetensors"):
        return True
    card = zoo.models().get(name)
    return card is not None and card.use == use


def _names(plain: list[str], use: str = "") -> str:
    return ", ".join(plain + [n for n, card in zoo.models().items() if card.use == use])
