"""choose(): from a request to a plan. The only place where "auto" or a name becomes an object.

It sees shape, dtype, stored entries and device, and reads no entry of V.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from factormer.accelerate.base import Judged, Restarted
from factormer.accelerate.her import HER
from factormer.data import Blocks, Dense, Matrix, Observed, Sparse
from factormer.data.svd import OVERSAMPLING
from factormer.kernels.core import core as compiled
from factormer.nn.anyrank import AnyRankNetwork
from factormer.problem.problem import Problem
from factormer.run import core, networks
from factormer.run import thresholds as T
from factormer.run.beyond import loss_passes, passes, sketch_width
from factormer.run.lifting import Beside, Lifted, Squared, Tied
from factormer.run.plan import Plan, Stage, View, Way
from factormer.run.registry import (
    DETERMINED,
    STARTS,
    TRAITS,
    Asked,
    is_solver,
    serving,
    solver_kind,
)
from factormer.run.request import Request, is_network
from factormer.sentence import Sentence
from factormer.solvers.base import Solver
from factormer.starts import Given, Initializer, Random, Rotated, Separable, Vertices

_HER = HER()
_PASSES_SAY = "one pass over V an iteration, many on a sketch between two (V is beyond memory)"


def choose(request: Request) -> Plan:
    """Return how to carry out the request; a choice that does not fit raises an error."""
    if request.solver != "auto" and not is_solver(request.solver):
        raise _unknown_solver(request)
    if (plan := _by_core(request)) is not None:
        return plan
    stages = _stages(request)
    start, name, why = _start(request, request.start, stages[0].view)
    restart = start
    if request.n_init > 1 and (request.start in DETERMINED or name in DETERMINED):
        restart = _start(request, "random", stages[0].view).start
    n_runs = max(request.n_init, _runs(request, name))
    kinds = _kinds(request, start, name)
    if kinds and stages[0].view is View.SKETCH:
        n_iter = max(stages[0].max_iter, request.limits.max_iter * 4 // 5)
        stages[0] = stages[0]._replace(max_iter=n_iter)
    settles = _settles(request)
    return Plan(request, start, name, why, restart, n_runs, tuple(stages), settles, kinds)


def _unknown_solver(request: Request) -> ValueError:
    """Return the error for a solver's name that does not exist, with those that serve instead."""
    plan = choose(replace(request, solver="auto"))
    names = serving(Asked(request.problem, request.is_symmetric))
    name = plan.stages[-1].name
    taken = repr(name) if is_solver(name) else "one for data beyond memory, without a name"
    if plan.way is Way.CORE:
        taken += " in the compiled core"
    return ValueError(
        Sentence(
            "{solver} is {given!r}, and no solver has this name. For this request ({asked}), "
            "'auto', the default, takes {taken}: leave {solver} out, or choose one of {names}",
            given=request.solver,
            asked=plan.explanation.asked,
            taken=taken,
            names=", ".join(names),
        )
    )


def _by_core(request: Request) -> Plan | None:
    """The plan for the compiled core, where it serves the request."""
    if request.engine == "reference":
        return None
    if (lacking := core.lacks(request)) is not None:
        if request.engine == "auto":
            return None
        raise ValueError(
            Sentence(
                "engine 'core' does not serve this, as {lacking}; choose engine='auto'",
                lacking=lacking,
            )
        )
    if request.solver != "auto":
        solver_kind(
            request.solver, request.problem, tied=request.is_symmetric
        )  # which refuses what it does not solve
    if core.is_by_newton(request):
        chosen, max_iter = _solver(request, View.ITSELF), request.limits.max_iter
        stages = [Stage(View.ITSELF, *chosen, max_iter, precision="float64")]
        start = _start(request, request.start, View.ITSELF)
        return _on_core(request, start, stages, T.LOSS_GENERATION)
    V, max_iter = request.problem.V, request.limits.max_iter
    is_double, why = V.dtype == torch.float64, "the fastest for one matrix"
    if request.is_symmetric:
        why = "both factors are pulled together"
    precision = "mixed" if is_double and float(V.work()) >= T.CORE_SINGLE else "float64"
    stages = [Stage(View.ITSELF, _HER, "her", why, max_iter, precision=precision)]
    if (width := _width_of_sketch(request)) is not None:
        until, single = max_iter - min(T.POLISH, (max_iter + 1) // 2), "float32"
        why = "an iteration there costs much less"
        on_sketch = Stage(View.SKETCH, _HER, "her", why, until, False, single, width)
        stages.insert(0, on_sketch)
    return _on_core(request, _start_of_core(request), stages, T.GENERATION)


def _on_core(request: Request, start: _Start, stages: list[Stage], generation: int) -> Plan:
    """The plan for the core by these stages; of several runs, some end after a generation."""
    again = start
    if request.n_init > 1 and (request.start in DETERMINED or start.name in DETERMINED):
        again = _start(request, "random", View.ITSELF)
    n_runs, settles = max(request.n_init, _runs(request, start.name)), _settles(request)
    kinds = _kinds(request, start.start, start.name)
    if request.n_init > 1 and len(stages) == 1 and request.limits.tol:
        until = min(generation, request.limits.max_iter * 2 // 5)
        stages.insert(0, stages[0]._replace(max_iter=until))
        stages[0] = stages[0]._replace(why="which of the runs will end best shows there")
    if request.n_init > 1 and len(stages) > 1:
        stages[0] = stages[0]._replace(keep=T.KEPT)
    return Plan(request, *start, again.start, n_runs, tuple(stages), settles, kinds, Way.CORE)


def _start_of_core(request: Request) -> _Start:
    """The start of that name; where none is named, rotated if V is large enough to pay for it."""
    problem, (m, n) = request.problem, request.problem.V.shape
    if request.start != "auto" or request.is_symmetric:
        return _start(request, request.start, View.ITSELF)
    if not problem.is_plain:
        start = _start(request, "random", View.ITSELF)
        return start._replace(why="penalties and known columns do the rest")
    if problem.rank >= T.FULL * min(m, n):
        return _named(request, "auto", View.ITSELF)
    if m * n <= T.SVD_PAYS:
        return _Start(STARTS["random"](), "random", "V is small")
    return _Start(Rotated(), "rotated", "an SVD of a sketch costs a few iterations, and saves many")


def _width_of_sketch(request: Request) -> int | None:
    """How wide a sketch is on which to iterate first; None where it does not pay."""
    problem, V = request.problem, request.problem.V
    if request.is_symmetric or request.start == "custom":
        return None
    if not (problem.is_plain and isinstance(V, Dense)):
        return None
    (m, n), p = V.shape, 2 * problem.rank + OVERSAMPLING
    pays = m * n >= T.CORE_SKETCH and m * n >= T.CORE_SKETCH_PAYS * (m + n) * p
    return p if pays and p <= min(m, n) and request.limits.max_iter > 1 else None


def _kinds(request: Request, start: Initializer, name: str) -> tuple[Initializer, ...]:
    """The kinds of start of several runs side by side: none is best everywhere.

    Empty where runs follow each other: if a start or solver was asked for, or there is one run.
    """
    problem, asked = request.problem, (request.start, request.solver)
    if request.n_init == 1 or asked != ("auto", "auto") or request.is_symmetric:
        return ()
    V = problem.V
    one = len(V.shape) == 2 and V.device.type == "cpu" and not isinstance(V, Blocks)
    counts = isinstance(start, Beside) and isinstance(start.base, Squared) and problem.is_free
    counts = counts and math.prod(V.shape) > T.SMALL_LOSS
    if not one or not (problem.is_plain or counts) or not request.limits.max_iter:
        return ()
    others = () if counts else T.KINDS  # that start has several kinds in it
    return (start, *(STARTS[kind]() for kind in others if kind != name))


def _runs(request: Request, start: str) -> int:
    """How many runs of which the best is kept, if nobody asks for more: several if V is tiny."""
    V, limits = request.problem.V, request.limits
    tiny = len(V.shape) == 2 and V.device.type == "cpu" and math.prod(V.shape) <= T.TINY
    several = tiny and request.start == "auto" and start == "random" and request.problem.is_plain
    return T.TINY_RUNS if several and limits.tol and not request.is_symmetric else 1


def _settles(request: Request) -> bool:
    """Whether to make W optimal for H at the end: not if tol=0 asks for all iterations."""
    limits = request.limits
    beyond = isinstance(request.problem.V, Blocks) and not request.problem.is_quadratic
    if len(request.problem.V.shape) > 2 or request.is_symmetric or beyond:
        return False
    return bool(limits.tol and limits.max_iter) or request.is_settled


# Stages and solvers


class _Solver(NamedTuple):
    solver: Solver[Any]
    name: str
    why: str


def _stages(request: Request) -> list[Stage]:
    """What to work on, with which solver: V, and before it V in float32, and a sketch of V."""
    problem, max_iter = request.problem, request.limits.max_iter
    if isinstance(problem.V, Blocks):
        return _by_passes(request, problem.V)
    chosen = _solver(request, View.ITSELF)
    stages = [Stage(View.ITSELF, *chosen, max_iter)]
    if not problem.is_plain:
        return stages
    learned = is_network(request.start)
    if request.solver != "auto" or learned or not isinstance(chosen.solver, Judged):
        return stages
    V, rank = problem.V, problem.rank
    double = V.dtype == torch.float64 and len(V.shape) == 2
    if double and float(V.work()) * rank >= T.SINGLE:
        stages.insert(0, Stage(View.SINGLE, *chosen, max_iter))
    n_iter = _on_sketch(request)
    if n_iter is not None:
        on_sketch = _solver(request, View.SKETCH)
        stages.insert(0, Stage(View.SKETCH, *on_sketch, n_iter, exact=False))
    return stages


def _by_passes(request: Request, V: Blocks) -> list[Stage]:
    """The stages for data beyond memory: most iterations are on a sketch, made in two passes."""
    problem, max_iter = request.problem, request.limits.max_iter
    if is_network(request.start):
        raise ValueError(
            Sentence(
                "V, a {kind}, is read in blocks, and fitted without learned starts: raise "
                "{memory_limit} so that V fits into memory",
                kind=V.reader.kind,
            )
        )
    chosen = (
        _solver(request, View.ITSELF) if problem.is_quadratic else _Solver(*loss_passes(request, V))
    )
    stages = [Stage(View.ITSELF, *chosen, max_iter)]
    begins = chosen.name == "passes" and (problem.is_plain or request.start != "custom")
    if begins and max_iter:
        sketch_width(V, problem.rank)  # which refuses a limit that is too low
        passes = T.PASSES if problem.is_plain else T.LOSS_PASSES
        passes = passes if request.limits.tol else T.LAST_PASSES
        n_iter = max_iter - min(passes, (max_iter + 1) // 2)
        squares = replace(request, problem=Problem(V, problem.rank))
        on_sketch = _solver(squares, View.SKETCH)
        stages.insert(0, Stage(View.SKETCH, *on_sketch, n_iter, exact=False))
    return stages


def _solver(request: Request, view: View) -> _Solver:
    """The solver to take, with its accelerator, and why."""
    problem, V = request.problem, request.problem.V
    uses = None if request.accelerator == "auto" else request.accelerator
    special = request.is_symmetric or not problem.is_plain
    if special and uses is not None:
        networks.check_special(uses, V, request.is_symmetric)
    by_passes = view is View.ITSELF and request.solver == "auto"
    if isinstance(V, Blocks) and by_passes and not special and uses is None:
        return _Solver(passes(V), "passes", _PASSES_SAY)
    network = None if uses is None else networks.accelerator(uses, V.device)
    if request.solver != "auto":
        name, why = request.solver, "asked for"
    elif request.is_symmetric:
        name, why = "hals", "one factor"
    elif special:
        name, why = _auto_for_losses(problem)
    else:
        serves_one_rank = network is not None and not isinstance(network, AnyRankNetwork)
        name, why = _auto_for_least_squares(V, problem.rank, view, serves_one_rank)
    kind = solver_kind(name, problem, tied=request.is_symmetric)
    solver = kind.make(problem)
    if network is None:
        return _Solver(solver, kind.name, f"{kind.says} ({why})")
    if special and not isinstance(solver, Restarted):
        raise ValueError(
            Sentence(
                "{accelerator} is {given!r}, which replaces an extrapolation, and solver {name!r} "
                "has none here: leave the accelerator out, or choose another solver",
                given=uses,
                name=kind.name,
            )
        )
    solver = networks.accelerated(solver, network, request.safeguard)
    how = ", every proposal taken" if request.safeguard == "always" else ""
    return _Solver(solver, kind.name, f"{kind.says} ({why}), with the network {uses}{how}")


def _auto_for_least_squares(
    V: Matrix, rank: int, view: View, serves_one_rank: bool
) -> tuple[str, str]:
    """The name of the solver for plain least squares, and why."""
    if serves_one_rank:
        return "hals", "a network for one rank accelerates it"
    if len(V.shape) > 2 or V.device.type != "cpu":
        return "her-admm", "products alone, for stacks and GPUs"
    if view is not View.SKETCH and _looks_ahead(V, rank):
        return "ahead", "V is large relative to its factors"
    return "her", "the fastest for one matrix of this size"


def auto_solver(problem: Problem) -> tuple[str, Solver[Any]]:
    """The solver for another loss, weights or penalties, and its name."""
    name, _ = _auto_for_losses(problem)
    return name, solver_kind(name, problem).make(problem)


def _auto_for_losses(problem: Problem) -> tuple[str, str]:
    """The name of the solver for another loss, weights or penalties, and why."""
    asked, V = Asked(problem), problem.V
    if not TRAITS["elastic"].holds(asked):
        return "ao-admm", "it takes any penalty"
    if TRAITS["squared error"].holds(asked):
        return "hals", "the squared error with L1 and L2"
    one = len(V.shape) == 2 and V.device.type == "cpu" and not isinstance(V, Blocks)
    if one and TRAITS["β"].holds(asked) and compiled() is not None:
        return "newton", "one matrix on a CPU"
    return "mu-extrapolated", "products alone, for stacks and GPUs"


def _looks_ahead(V: Matrix, rank: int) -> bool:
    """Whether V is so large that iterations ahead, between two passes over it, cost little."""
    if not isinstance(V, Dense) or len(V.shape) != 2 or V.device.type != "cpu":
        return False
    m, n = V.shape
    return m * n >= T.AHEAD * 2 * rank * (m + n) and 2 * rank * m * n > T.AHEAD_WORK


def _on_sketch(request: Request) -> int | None:
    """The iteration up to which to work on a sketch; None where V itself is best.

    A sketch pays for one dense matrix if an iteration on it is several times cheaper, often enough
    to repay making the sketch (docs/engine.md).
    """
    V, rank, max_iter = request.problem.V, request.problem.rank, request.limits.max_iter
    if not isinstance(V, Dense) or len(V.shape) != 2:
        return None
    (m, n), p = V.shape, rank + OVERSAMPLING
    if p > min(m, n) or m * n <= T.SVD_PAYS or m * n < T.SKETCH_PAYS * (m + n) * p:
        return None
    saved, made = 2 * rank * (m * n - (m + n) * p), 4 * p * m * n  # an iteration, and the sketch
    if 2 * rank * saved < T.SKETCH_WORTH * made:  # it takes about 2r iterations
        return None
    half = (max_iter + 1) // 2
    return max_iter - (half if _looks_ahead(V, rank) else min(T.POLISH, half))


# Starts

_WITH_ZEROS = ("merged", "rotated", "separable")  # and "nndsvd", which is scikit-learn's
_KEEPING_ZEROS = ("mu", "mu-extrapolated")  # multiplicative updates


class _Start(NamedTuple):
    start: Initializer
    name: str
    why: str


def _start(request: Request, name: str, view: View) -> _Start:
    """The start of that name, adapted to the loss, known columns or a single factor."""
    problem = request.problem
    if request.is_symmetric:
        name = "random" if name == "auto" else name
        chosen = _named(request, name, view)
        return chosen._replace(start=Tied(chosen.start))
    if problem.is_plain or view is View.SKETCH:  # which is fitted by least squares
        chosen = _named(request, name, view)
        if chosen.name in _WITH_ZEROS and request.solver in _KEEPING_ZEROS:
            chosen = chosen._replace(start=Lifted(chosen.start, n_iter=0))
        return chosen
    if name == "auto":
        chosen = _auto_lifted(request)
    else:
        chosen = _named(request, name, view)
        if name != "custom" and not problem.loss.is_quadratic:
            chosen = chosen._replace(start=Lifted(chosen.start, n_iter=0))
    return chosen._replace(start=Beside(chosen.start))


def _named(request: Request, name: str, view: View) -> _Start:
    V, rank, why = request.problem.V, request.problem.rank, "asked for"
    if name == "custom":
        assert request.x0 is not None
        return _Start(Given(request.x0), "custom", "given")
    if name == "auto":
        name, why = _auto_start(V, rank, view)
        if name == "separable":
            m, n = V.shape
            return _Start(Separable("rows" if m <= n else "columns"), name, why)
    if name in STARTS:
        return _Start(STARTS[name](), name, why)
    if networks.ships(name, use="init"):
        start = networks.learned_start(name, V.device, request.safeguard)
        return _Start(start, name, f"learned; {why}")
    names = ", ".join(["auto", *STARTS, "custom", *networks.names_for("init")])
    raise ValueError(
        Sentence("{init} is {given!r}; choose one of {names}", given=name, names=names)
    )


def _auto_start(V: Matrix, rank: int, view: View) -> tuple[str, str]:
    """The name of the start for least squares, and why."""
    *batch, m, n = V.shape
    if rank >= T.FULL * min(m, n):
        if batch or view is View.SKETCH:
            return "random", "the rank is nearly that of V"
        why = "the rank is close to min(m, n), so rows or columns of V are a nearly exact start"
        return "separable", why
    if isinstance(V, Sparse):
        return "merged", "nothing is decomposed, which suits sparse data"
    if batch:
        return "nndsvd", "the same for each of a stack"
    if view is View.SKETCH:
        return "rotated", "the sketch gives the SVD, and makes several starts cheap"
    if m * n > T.SVD_PAYS:
        return "rotated", "V is large enough to pay for an SVD"
    return "random", "V is small"


def _auto_lifted(request: Request) -> _Start:
    """The start for another loss: random, and fitted a little by least squares where V is small."""
    problem = request.problem
    if problem.is_quadratic and isinstance(problem.V, Dense) and len(problem.V.shape) == 2:
        for on, by in ((problem.on_w, "rows"), (problem.on_h, "columns")):
            *_, total = on.by_rows or (None,)
            if total is not None:
                why = f"shares that sum to {total:g}: the purest {by} of V"
                return _Start(Vertices(by, total), "vertices", why)
    known = problem.V.V if isinstance(problem.V, Observed) else problem.V
    one = len(problem.V.shape) == 2 and not isinstance(problem.V, Observed)
    small = one and float(problem.V.work()) <= T.SMALL_LOSS
    counts = isinstance(known, Dense) and problem.loss.is_for_counts
    random = STARTS["random"]()
    if isinstance(problem.V, Sparse) and problem.loss.is_for_counts and known.device.type == "cpu":
        why = "20 iterations of least squares on √V first, and three multiplicative updates"
        return _Start(Squared(random, on_counts=3), "random", why)
    if small and counts:
        return _Start(Squared(random), "random", "20 iterations of least squares on √V first")
    if one and counts and known.device.type == "cpu":
        several = Squared(Rotated(), on_roots=80, on_counts=3, others=(Random(), Random()))
        return _Start(several, "rotated", "the best of three fits of √V first")
    why = "V is small: 5 iterations of least squares first" if small else "the loss does the rest"
    return _Start(Lifted(random, n_iter=5 if small else 0), "random", why)
