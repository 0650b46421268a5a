"""The way "core": plans as lanes of the compiled core, from their starts to their ends.

A lane is one (V, rank, start, seed). Lanes in the same stage make one call, which shares them out
over threads; where a lane ends, it begins in the next stage. No lane depends on its neighbours, so
a list of plans gives the results of each alone, to the last bit. The slow twin is `run.execute`
with the way "reference".
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from factormer.data import Dense, LowRank, Matrix, Observed, Sparse, counted, for_core
from factormer.data.factors import Factors
from factormer.data.intake import check_mean, check_start, check_unit
from factormer.kernels.core import apart, core, width
from factormer.problem.error import rmse
from factormer.problem.problem import Problem
from factormer.run import thresholds as T
from factormer.run.order import canonical
from factormer.run.plan import Plan, Stage, View
from factormer.run.request import Request
from factormer.run.result import Result, Status
from factormer.run.stop import Watch
from factormer.run.trace import Row, Trace
from factormer.solvers.newton import thinned
from factormer.solvers.symmetric import Symmetric
from factormer.starts import Initializer, Random, Rotated

_MOST_ITERATIONS = 2**31 - 1  # that the core counts
_NEAR = 1e-4  # of the largest error: an error whose digits products of sparse data may not have
_NEAR_CUT = 1e-2  # the same for any data where no time was left to form it entry by entry
READINGS = 4  # of V, for a sketch: from both sides, twice
_AFTERWARDS = 1e8  # multiplications that may be made to know an error after the time is up
_CUT_SHORT = (Status.TIME_LIMIT, Status.INTERRUPTED)


def lacks(request: Request) -> str | None:
    """What keeps the core from serving a request, as the end of a sentence; None if it serves."""
    problem, V = request.problem, request.problem.V
    on, steps = (problem.on_w, problem.on_h), is_by_newton(request)
    if core() is None:
        return "it is not installed here"
    known = problem.is_quadratic or problem.loss.kernel_beta is not None
    if not (known and problem.is_elastic) or any(o.pull is not None for o in on):
        return "it minimises β-divergences, with L1, L2 and known columns at most"
    kinds = Dense | Sparse | Observed if steps else Dense | Sparse
    if not isinstance(V, kinds) or len(V.shape) > 2 or V.device.type != "cpu":
        return "it takes one dense or sparse matrix in the memory of a CPU"
    solver = "newton" if steps else "her"
    if request.solver not in ("auto", solver) or request.accelerator not in ("auto", None):
        return f"its solver is '{solver}' here, without a network"
    if request.limits.stop != "auto":
        return "it has a stop rule of its own"
    if request.is_settled:
        return "it finds two factors"
    if any(o.fixed is not None and bool((o.fixed.columns < 0).any()) for o in on):
        return "known columns have negative entries"
    return None


def is_by_newton(request: Request) -> bool:
    """Whether the core serves a request by Newton steps: other losses, and entries with weights."""
    return not request.problem.is_quadratic or request.solver == "newton"


class Recipe(NamedTuple):
    """How the core makes a start for Newton steps.

    From numbers that it draws by name, iterations of least squares `fits` V, or √V, whose factors
    are squared; multiplicative updates mend what that leaves. Of several `starts`, those after the
    first are random, and the best fit is taken.
    """

    draws: str = "random"
    starts: int = 1
    fits: int = 0
    mends: int = 0
    roots: bool = False


@runtime_checkable
class Made(Protocol):
    """A start that the core makes for some V: `recipe` says how, or is None."""

    def recipe(self, V: Matrix) -> Recipe | None:
        """Return the recipe for V."""
        ...


class Lane(NamedTuple):
    """A run to make: its plan, its matrix, its seed, and the kind of its start."""

    plan: Plan
    V: Matrix
    seed: int
    start: Initializer


class Run(NamedTuple):
    """A lane under way or at its end.

    `history` has a row (error, seconds) for the start and for each iteration, and `passes` says how
    often V had been read by then.
    """

    W: np.ndarray
    H: np.ndarray
    error: float
    status: Status
    history: np.ndarray
    passes: np.ndarray

    @property
    def n_iter(self) -> int:
        """Outer iterations made, in all stages."""
        return len(self.history) - 1

    def alone(self) -> Run:
        """Return the run in memory of its own, which it else shares with those of the same call."""
        return self._replace(W=self.W.copy(), H=self.H.copy(), history=self.history.copy())


class Rules(NamedTuple):
    """What the lanes of a call have in common: when they stop, and how they end."""

    max_iter: int
    tol: float
    l1: tuple[float, float]
    l2: tuple[float, float]
    pull: float
    precision: str
    finish: str
    order: bool
    scale: str
    loss: tuple[Any, ...] | None

    @classmethod
    def of(cls, plan: Plan, stage: Stage, V: Matrix) -> Rules:
        """The rules of a stage on V; before the last, components stay as they are."""
        request, is_last = plan.request, stage is plan.stages[-1]
        weights = [on.elastic or (0.0, 0.0) for on in (request.on_w, request.on_h)]
        tidies = is_last and not request.keeps_order
        return cls(
            max_iter=min(stage.max_iter, _MOST_ITERATIONS),
            tol=request.limits.tol,
            l1=(float(weights[0][0]), float(weights[1][0])),
            l2=(float(weights[0][1]), float(weights[1][1])),
            pull=Symmetric().pull if request.is_symmetric else 0.0,
            precision=stage.precision,
            finish="exact" if is_last and plan.settles else "none",
            order=tidies and request.order is not None,
            scale=(request.scale or "none") if tidies and request.is_free else "none",
            loss=_newton(plan, V) if is_by_newton(request) else None,
        )


def _newton(plan: Plan, V: Matrix) -> tuple[Any, ...]:
    """β, the sweeps of a step, the growth of the extrapolation, and the recipe of starts."""
    beta = plan.request.problem.loss.kernel_beta
    made = [start.recipe(V) for start in (plan.start, plan.restart) if isinstance(start, Made)]
    recipe = next((r for r in made if r is not None), Recipe())
    steps = T.BOLD if isinstance(V, Dense) and beta == 1 else T.STEPS
    return (beta, *steps, recipe.starts, recipe.fits, recipe.mends, recipe.roots)


def lanes_of(plan: Plan, seeds: Sequence[int | None], V: Matrix | None = None) -> list[Lane]:
    """The lanes of a plan, one for each seed, on its own matrix or on another of its kind."""
    V = plan.request.problem.V if V is None else V
    if is_by_newton(plan.request):
        problem = replace(plan.request.problem, V=V)
        degree = problem.loss.degree
        if abs(degree) > 1 and float(mean := problem.mean()):  # else no power overflows
            check_unit(problem.unit(mean), mean, degree)
        V = thinned(problem).V
    kinds = plan.kinds or (plan.start, *[plan.restart] * (len(seeds) - 1))
    return [Lane(plan, V, _seed(seed), kinds[k % len(kinds)]) for k, seed in enumerate(seeds)]


def fitted(
    plan: Plan,
    seeds: Sequence[int | None],
    started: float,
    until: float | None = None,
    callback: Callable[[Row], object] | None = None,
    watch: Watch | None = None,
) -> Result:
    """The best run of a plan, of one for each seed; arguments as in `run.execute`."""
    runs = finished(lanes_of(plan, seeds), started, until, Eyes(callback, watch))
    best = best_of([run for run in runs if run is not None])
    return result_of(plan, best if len(runs) == 1 else best.alone())


def best_of(runs: Sequence[Run]) -> Run:
    """The run with the least error; cut short if any of them was."""
    best = min(runs, key=lambda run: run.error)
    return next((best._replace(status=r.status) for r in runs if r.status in _CUT_SHORT), best)


def result_of(
    plan: Plan, run: Run, V: Matrix | None = None, as_given: Callable[[Tensor], Any] = Tensor.detach
) -> Result:
    """Return the result of a run; of another matrix of the plan's kind where one is given.

    Where the time was up before a large V was read once, the error is not known: it is infinite.
    """
    request, is_cut = plan.request, run.status in _CUT_SHORT
    problem, V = request.problem, request.problem.V if V is None else V
    x = _point(run, request)
    if is_cut and not request.keeps_order:  # maybe before the last stage
        x = canonical(x, request.order, request.scale if request.is_free else None)
    error = torch.from_numpy(np.array(run.error))
    near = _NEAR_CUT if is_cut else _NEAR if isinstance(V, Sparse) else 0.0
    is_blurred = problem.is_quadratic and near > 0 and run.error < near * run.history[:, 0].max()
    is_rough = is_cut and plan.stages[0].view is View.SKETCH
    is_known = run.error < math.inf
    in_time = not is_cut or V.work() * problem.rank <= _AFTERWARDS
    if in_time and (is_blurred or is_rough or not is_known):
        error = rmse(replace(problem, V=V), x)
        if not is_known:
            run.history[-1, 0] = float(error)
    return Result(x, run.status, _trace(problem, run), error, as_given, plan.explanation)


class Eyes(NamedTuple):
    """Who looks on: `callback` gets each row of a trace, `watch` points and traces.

    The core lets them look every few iterations, at the lanes of the calling thread; what they have
    not heard of a lane by then they hear at the end of each stage. So the rows of several runs come
    one run after another, each in order.
    """

    callback: Callable[[Row], object] | None = None
    watch: Watch | None = None

    def on(self, lanes: list[Lane], runs: list[Run | None], stage: Stage) -> _Looks | None:
        """Return what the core calls between iterations of a stage; None where nobody looks."""
        if self.callback is None and self.watch is None:
            return None
        return _Looks(self, lanes, runs, stage)


class _Looks:
    """A stage that somebody watches."""

    def __init__(self, eyes: Eyes, lanes: list[Lane], runs: list[Run | None], stage: Stage) -> None:
        self._eyes, self._lanes, self._stage = eyes, lanes, stage
        self._begun, self._seen = runs, list(runs)
        self._heard = [0 if run is None else len(run.history) for run in runs]

    def __call__(
        self, lane: int, iteration: int, error: float, W: Any, H: Any, rows: np.ndarray
    ) -> bool:
        """Show what is new of a lane; return whether somebody wants to end."""
        before, begun = self._seen[lane], self._begun[lane]
        history = rows if before is None else np.concatenate([before.history, rows])
        passes = _passes(self._stage, len(history), begun, self._lanes[lane])
        return self.show(lane, Run(W, H, error, Status.MAX_ITER, history, passes))

    def show(self, lane: int, run: Run) -> bool:
        """Show a run, as far as it has not been shown."""
        first, self._heard[lane] = self._heard[lane], len(run.history)
        self._seen[lane] = run
        if first == len(run.history):
            return False
        plan = self._lanes[lane].plan
        trace = _trace(plan.request.problem, run)
        if self._eyes.callback is not None:
            for row in trace.rows[first:]:
                self._eyes.callback(row)
        watch = self._eyes.watch
        return watch is not None and bool(watch(_point(run, plan.request), trace))


def finished(
    lanes: list[Lane], started: float, until: float | None = None, eyes: Eyes | None = None
) -> list[Run | None]:
    """Each lane at its end; `until` is a reading of `time.perf_counter()`."""
    eyes = eyes or Eyes()
    places: dict[Any, list[int]] = {}
    by_plan: dict[tuple[int, type], list[int]] = {}
    for k, lane in enumerate(lanes):
        by_plan.setdefault((id(lane.plan), type(lane.V)), []).append(k)
    for at in by_plan.values():
        plan, V = lanes[at[0]].plan, lanes[at[0]].V
        key = tuple((s.view, s.width, s.keep, Rules.of(plan, s, V)) for s in plan.stages)
        places.setdefault(key, []).extend(at)
    done: list[Any] = [None] * len(lanes)
    for key, at in places.items():
        rules_of_stages = [stage[-1] for stage in key]
        found = _alike([lanes[k] for k in at], rules_of_stages, started, until, eyes)
        for k, run in zip(at, found, strict=True):
            done[k] = run
        if any(done[k].status is Status.INTERRUPTED for k in at):
            break
    return done


def _alike(
    lanes: list[Lane], rules: list[Rules], started: float, until: float | None, eyes: Eyes
) -> list[Run]:
    """Each lane at its end, where all have the same stages, with these rules."""
    runs: list[Any] = [None] * len(lanes)
    at = list(range(len(lanes)))
    for stage, rule in zip(lanes[0].plan.stages, rules, strict=True):
        here, begun = [lanes[k] for k in at], [runs[k] for k in at]
        views, index = _views(here, stage, until)
        found = _carried_out(here, views, index, stage, rule, begun, started, until, eyes)
        for k, run in zip(at, found, strict=True):
            runs[k] = run
        cut = next((run.status for run in found if run.status in _CUT_SHORT), None)
        if cut is not None:
            if stage is not lanes[0].plan.stages[-1]:  # no lane has come to its end
                for k in at:
                    runs[k] = runs[k]._replace(status=cut)
            break
        if stage.keep < 1:
            left = sorted(_kept(lanes, runs, at, stage.keep))
            # An error on a sketch says nothing beside errors on V.
            for k in set(at).difference(left):
                runs[k] = runs[k]._replace(error=math.inf)
            at = left
    return runs


def _kept(lanes: list[Lane], runs: list[Run], at: list[int], share: float) -> Iterator[int]:
    """The runs that go on: of each plan on its matrix, the best of them, at least one."""
    groups: dict[Any, list[int]] = {}
    for k in at:
        groups.setdefault((id(lanes[k].plan), id(lanes[k].V)), []).append(k)
    for group in groups.values():
        group.sort(key=lambda k: runs[k].error)
        yield from group[: math.ceil(share * len(group))]


def _views(lanes: list[Lane], stage: Stage, until: float | None) -> tuple[list[Matrix], list[int]]:
    """Return the matrices that a stage works on, and which of them is each lane's."""
    places: dict[int, int] = {}
    index = [places.setdefault(id(lane.V), len(places)) for lane in lanes]
    distinct: list[Any] = [None] * len(places)
    for lane, k in zip(lanes, index, strict=True):
        distinct[k] = lane.V
    if stage.view is not View.SKETCH:
        return distinct, index
    return [sketch_of(V, stage.width, until) for V in distinct], index


def sketch_of(V: Matrix, p: int, until: float | None = None) -> Matrix:
    """A sketch of V of p columns, the same for whoever asks; V itself if there is no time."""
    module = core()
    assert module is not None
    precision = "float32" if V.dtype == torch.float64 else "float64"
    options = {"precision": precision, "seconds": _left(until), "threads": width()}
    U, Z, lost = module.sketch(for_core(V), p, **options)
    if U is None:
        return V
    return LowRank(torch.from_numpy(U), torch.from_numpy(Z), torch.tensor(lost))


def _carried_out(
    lanes: list[Lane],
    views: list[Matrix],
    index: list[int],
    stage: Stage,
    rules: Rules,
    runs: list[Run | None],
    started: float,
    until: float | None,
    eyes: Eyes,
) -> list[Run]:
    """The lanes at the end of a stage, in one call."""
    if runs[0] is not None:
        starts: Any = [(run.W, run.H) for run in runs if run is not None]
        earlier: Any = [run.history for run in runs if run is not None]
    else:
        starts, earlier = _starts(lanes, views, index, until), None
    module, problem = core(), lanes[0].plan.request.problem
    assert module is not None
    looks = eyes.on(lanes, runs, stage)
    ranks = [lane.plan.request.problem.rank for lane in lanes]
    found = module.run(
        [for_core(V) for V in views],
        index,
        ranks,
        [lane.seed for lane in lanes],
        starts,
        _fixed(problem, len(lanes)),
        earlier,
        seconds=_left(until),
        since=time.perf_counter() - started,
        threads=width(),
        callback=looks,
        **rules._asdict(),
    )
    ended = []
    each = apart(found, [lane.V.shape for lane in lanes], ranks)
    for x, lane, before in zip(each, lanes, runs, strict=True):
        passes = _passes(stage, len(x.history), before, lane)
        ended.append(Run(x.W, x.H, x.error, Status[x.status], x.history, passes))
    if looks is not None and any([looks.show(k, run) for k, run in enumerate(ended)]):
        ended = [run._replace(status=Status.INTERRUPTED) for run in ended]
    return ended


def _passes(stage: Stage, count: int, before: Run | None, lane: Lane) -> np.ndarray:
    """Return the readings of V up to so many rows: for a sketch, a start, and two an iteration."""
    is_sketch = stage.view is View.SKETCH
    begun = 1 if before is None else int(before.passes[-1])
    if is_sketch or (before is None and type(lane.start) is Rotated):
        begun += READINGS
    later = count if before is None else count - len(before.passes) + 1
    passes = np.full(later, begun) if is_sketch else np.arange(begun, begun + 2 * later, 2)
    return passes if before is None else np.concatenate([before.passes, passes[1:]])


def _starts(
    lanes: list[Lane], views: list[Matrix], index: list[int], until: float | None
) -> list[Any] | None:
    """The starts of lanes: points, or names of what the core makes; None where all are random.

    Those that there is no time for are random.
    """
    found: list[Any] = [None] * len(lanes)
    for k, lane in enumerate(lanes):
        if type(lane.start) is Random:
            continue
        request = lane.plan.request
        problem = replace(request.problem, V=views[index[k]])
        if type(lane.start) is Rotated and _fixed(problem, 1) is None:
            found[k] = "rotated"
            continue
        recipe = lane.start.recipe(lane.V) if isinstance(lane.start, Made) else None
        if recipe is not None and _fixed(problem, 1) is None:
            found[k] = recipe.draws
            continue
        if lane.start is lane.plan.start and request.x0 is not None and request.start == "custom":
            x = check_start(request.x0)
        elif _left(until) == 0 and _fixed(problem, 1) is None:
            continue
        else:
            x = _made(lane.start, problem, lane.seed)
        x = problem.taken(x)
        found[k] = tuple(F.double().clamp(min=0).numpy() for F in x)
    return found if any(start is not None for start in found) else None


@torch.no_grad()
def _made(start: Initializer, problem: Problem, seed: int) -> Factors:
    """A start on V, made on V over its mean."""
    scaled, mean = problem.normalized()
    check_mean(mean)
    x = start(scaled, torch.Generator().manual_seed(seed))
    return scaled.scaled_back(x, mean)


def _fixed(problem: Problem, count: int) -> list[Any] | None:
    """The components that stay as the starts have them, of W and of H, for each lane."""
    known = problem.on_w.fixed, problem.on_h.fixed
    if known == (None, None):
        return None
    places = [[] if f is None else np.flatnonzero(f.at.numpy()).tolist() for f in known]
    return [(places[0], places[1])] * count


def _trace(problem: Problem, run: Run) -> Trace:
    trace = Trace.of(torch.from_numpy(run.history[:, 0]), run.history[:, 1], run.passes)
    trace.entries = np.float64(counted(problem.V))
    trace.measure = problem.measure
    return trace


def _point(run: Run, request: Request) -> Factors:
    """The factors in the precision of V, with known columns to the last digit.

    Where V ≈ H Hᵀ is asked for, both are the mean of the pair that the core iterates on.
    """
    W, H = torch.from_numpy(run.W), torch.from_numpy(run.H)
    if request.is_symmetric:
        W = H = (W + H) / 2
    x = request.problem.taken(Factors(W, H))
    if request.scale == "sum" and not bool(x.W.isfinite().all()):  # as large as V's sums
        x = request.problem.taken(canonical(Factors(W, H), None, "balanced"))
    return x


def _left(until: float | None) -> float:
    return math.inf if until is None else max(until - time.perf_counter(), 0.0)


def _seed(seed: int | None) -> int:
    return torch.Generator().seed() % 2**63 if seed is None else seed % 2**64
