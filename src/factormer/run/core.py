"""The way "core": a plan as lanes of the compiled core, from their starts to their ends.

A lane is one (V, rank, start, seed). Lanes of one stage make one call; where a lane ends, its lane
in the next stage begins. The slow twin is `run.execute` with the same plan and the way "reference".
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from factormer.data import Dense, LowRank, Matrix, Sparse
from factormer.data.factors import Factors
from factormer.data.intake import check_mean
from factormer.kernels.core import core
from factormer.kernels.threads import width
from factormer.problem.problem import Problem
from factormer.run.plan import Plan, Stage, View
from factormer.run.request import Request
from factormer.run.result import Result, Status
from factormer.run.stop import Watch
from factormer.run.trace import Row, Trace
from factormer.starts import Random

READINGS = 4  # of V, for a sketch: from both sides, twice


def lacks(request: Request) -> str | None:
    """What keeps the core from serving a request, as the end of a sentence; None if it serves."""
    problem, V = request.problem, request.problem.V
    if core() is None:
        return "it is not installed here"
    if not (problem.is_quadratic and problem.is_elastic):
        return "it minimises the squared error, with L1 and L2 as penalties at most"
    if not isinstance(V, Dense | Sparse) or len(V.shape) > 2 or V.device.type != "cpu":
        return "it takes one dense or sparse matrix in the memory of a CPU"
    if request.solver not in ("auto", "her") or request.accelerator not in ("auto", None):
        return "its solver is 'her', without a network"
    if request.limits.stop != "gradient" or request.is_symmetric or request.is_settled:
        return "it has its own stop rule, and finds both factors"
    on = (problem.on_w, problem.on_h)
    if any(o.pull is not None or (o.fixed is not None and bool((o.fixed.columns < 0).any())) for o in on):
        return "it takes known columns that are not negative"
    return None


class Run(NamedTuple):
    """A lane that has ended: its point, its error, and (error, seconds) of each iteration."""

    W: np.ndarray
    H: np.ndarray
    error: float
    status: Status
    history: np.ndarray

    @property
    def n_iter(self) -> int:
        """Outer iterations made, in all stages."""
        return len(self.history) - 1


@dataclass(frozen=True)
class Rules:
    """What all lanes of a call have in common: when they stop, and how they end."""

    max_iter: int
    tol: float
    l1: tuple[float, float]
    l2: tuple[float, float]
    precision: str
    finish: str
    order: bool
    scale: str

    @classmethod
    def of(cls, plan: Plan, stage: Stage) -> Rules:
        """The rules of a stage; what precedes the last keeps components as they are."""
        request, is_last = plan.request, stage is plan.stages[-1]
        (l1_w, l2_w), (l1_h, l2_h) = (on.elastic or (0.0, 0.0) for on in (request.on_w, request.on_h))
        tidies = is_last and not request.keeps_order
        return cls(
            max_iter=stage.max_iter,
            tol=request.limits.tol,
            l1=(float(l1_w), float(l1_h)),
            l2=(float(l2_w), float(l2_h)),
            precision=stage.precision,
            finish="exact" if is_last and plan.settles else "none",
            order=tidies and request.order is not None,
            scale=(request.scale or "none") if tidies and request.is_free else "none",
        )


def stored(V: Matrix) -> Any:
    """A matrix as the core takes it; dense arrays are used where they are."""
    if isinstance(V, Dense):
        entries = V.entries.numpy()
        by_rows, by_columns = entries.flags.c_contiguous, entries.flags.f_contiguous
        return entries if by_rows or by_columns else np.ascontiguousarray(entries)
    if isinstance(V, LowRank):
        return ("low-rank", V.U.double().numpy(), V.Z.double().numpy(), float(V.lost))
    assert isinstance(V, Sparse)
    rows = V.by_rows
    values = rows.values.numpy() if V.scale == 1 else V.scale * rows.values.double().numpy()
    return ("csr", *V.shape, rows.starts.numpy(), rows.columns.numpy(), values)


def fitted(
    plan: Plan,
    seeds: Sequence[int | None],
    started: float,
    until: float | None = None,
    callback: Callable[[Row], object] | None = None,
    watch: Watch | None = None,
) -> Result:
    """The best of the runs of a plan, one for each seed; arguments as in `run.execute`."""
    known = [_seed(seed) for seed in seeds]
    runs = _Runs(plan, known, started, until, callback, watch)
    for stage in plan.stages:
        runs.carry_out(stage)
        if any(run.status in (Status.TIME_LIMIT, Status.INTERRUPTED) for run in runs.ended):
            break
    best = min(range(len(runs.ended)), key=lambda k: runs.ended[k].error)
    return runs.result(best)


class _Runs:
    """The runs of one plan on their way through its stages."""

    def __init__(
        self,
        plan: Plan,
        seeds: list[int],
        started: float,
        until: float | None,
        callback: Callable[[Row], object] | None,
        watch: Watch | None,
    ) -> None:
        self._plan, self._seeds, self._started, self._until = plan, seeds, started, until
        self._callback, self._watch = callback, watch
        self._data = stored(plan.request.problem.V)
        self._readings = 1  # that the start took
        self.ended: list[Run] = []

    def carry_out(self, stage: Stage) -> None:
        """Begin every run that has not begun, and let all run to the end of a stage."""
        plan, problem = self._plan, self._plan.request.problem
        V, data = problem.V, self._data
        if stage.view is View.SKETCH:
            sketch = self._sketch(stage)
            if sketch is None:
                return
            V, data = sketch, stored(sketch)
        rules = Rules.of(plan, stage)
        if self.ended:
            starts: list[Any] = [(run.W, run.H) for run in self.ended]
            earlier = [run.history for run in self.ended]
        else:
            starts, earlier = self._starts(replace(problem, V=V)), None
        offset = time.perf_counter() - self._started
        found = call(
            [data],
            [0] * len(starts),
            [problem.rank] * len(starts),
            self._seeds,
            rules,
            starts=starts,
            fixed=_fixed(problem, len(starts)),
            earlier=earlier,
            until=self._until,
            callback=self._watcher(offset, earlier),
        )
        for run in found:
            run.history[0 if earlier is None else len(earlier[0]) :, 1] += offset
        self.ended = found

    def result(self, k: int) -> Result:
        """The result of a run."""
        run, request = self.ended[k], self._plan.request
        trace = _trace(self._plan, run.history, self._readings)
        x = _point(run, request.problem)
        error = torch.from_numpy(np.array(run.error))
        if not run.error < math.inf:  # nothing was computed yet
            error = request.problem.rmse(x)
        return Result(x, run.status, trace, error, plan=self._plan.explanation)

    def _sketch(self, stage: Stage) -> LowRank | None:
        """A sketch of V, unless time runs out before it is made."""
        limit = math.inf if self._until is None else self._until - time.perf_counter()
        module = core()
        assert module is not None
        options = {"precision": stage.precision, "seconds": max(limit, 0.0), "threads": width()}
        U, Z, lost = module.sketch(self._data, stage.width, seed=self._seeds[0], **options)
        self._readings += READINGS
        if U is None:
            return None
        return LowRank(torch.from_numpy(U), torch.from_numpy(Z), torch.tensor(lost))

    def _starts(self, problem: Problem) -> list[Any] | None:
        """The starts of the runs, or None for random ones, which the core draws."""
        plan = self._plan
        starts = [plan.start, *[plan.restart] * (len(self._seeds) - 1)]
        if all(type(start) is Random for start in starts):
            return [None] * len(starts)
        scaled, mean = problem.normalized()
        check_mean(mean)
        found = []
        for start, seed in zip(starts, self._seeds, strict=True):
            if start is plan.start and plan.request.x0 is not None:
                x = plan.request.x0
            else:
                rng = torch.Generator().manual_seed(seed)
                x = scaled.scaled_back(start(scaled, rng), mean)
            x = problem.taken(x)
            found.append((x.W.clamp(min=0).numpy(), x.H.clamp(min=0).numpy()))
        return found

    def _watcher(self, offset: float, earlier: list[np.ndarray] | None) -> Any:
        """What the core calls between iterations, None where nobody wants to know."""
        if self._callback is None and self._watch is None:
            return None
        plan, kept = self._plan, {}

        def look(lane: int, iteration: int, error: float, W: Any, H: Any, rows: np.ndarray) -> bool:
            rows = rows + [0.0, offset]
            before = kept.get(lane, np.empty((0, 2)) if earlier is None else earlier[lane])
            kept[lane] = np.concatenate([before, rows])
            trace = _trace(plan, kept[lane], self._readings)
            if self._callback is not None:
                for row in trace.rows[len(before) :]:
                    self._callback(row)
            if self._watch is None:
                return False
            run = Run(W, H, error, Status.MAX_ITER, kept[lane])
            return bool(self._watch(_point(run, plan.request.problem), trace))

        return look


def call(
    matrices: list[Any],
    index: list[int],
    ranks: list[int],
    seeds: list[int],
    rules: Rules,
    *,
    starts: list[Any] | None = None,
    fixed: list[Any] | None = None,
    earlier: list[np.ndarray] | None = None,
    until: float | None = None,
    callback: Any = None,
) -> list[Run]:
    """Run lanes to their ends; `until` is a reading of `time.perf_counter()`."""
    module = core()
    assert module is not None
    limit = math.inf if until is None else max(until - time.perf_counter(), 0.0)
    found = module.run(
        matrices,
        index,
        ranks,
        seeds,
        starts,
        fixed,
        earlier,
        seconds=limit,
        threads=width(),
        callback=callback,
        **vars(rules),
    )
    statuses = [Status[name] for name in module.STATUSES]
    return [Run(W, H, error, statuses[s], history) for W, H, error, _, s, history, _ in found]


def _fixed(problem: Problem, count: int) -> list[Any] | None:
    """The components that stay as the starts have them, of W and of H, for each lane."""
    known = [on.fixed for on in (problem.on_w, problem.on_h)]
    if known == [None, None]:
        return None
    places = [[] if f is None else np.flatnonzero(f.at.numpy()).tolist() for f in known]
    return [(places[0], places[1])] * count


def _trace(plan: Plan, history: np.ndarray, readings: int) -> Trace:
    trace = Trace()
    problem = plan.request.problem
    trace.entries, trace.measure = np.float64(math.prod(problem.V.shape)), problem.measure
    passes = readings + 2 * np.arange(len(history))
    trace.follow(torch.from_numpy(history[:, 0].copy()), history[:, 1].copy(), passes)
    return trace


def _point(run: Run, problem: Problem) -> Factors:
    """The factors in the precision of V, with known columns to the last digit."""
    return problem.taken(Factors(torch.from_numpy(run.W), torch.from_numpy(run.H)))


def _seed(seed: int | None) -> int:
    return torch.Generator().seed() % 2**63 if seed is None else seed % 2**64
