"""execute(): carry out plans. Stages, restarts, settling, order and scale, for every caller."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle

import numpy as np
import torch

from factormer.accelerate import proposals
from factormer.accelerate.her import is_small_for
from factormer.data import Blocks, LowRank, readings, sketch
from factormer.data.factors import Factors
from factormer.data.intake import check_mean, check_start, check_unit
from factormer.data.spread import Spread
from factormer.data.warn import warn
from factormer.kernels.threads import threads
from factormer.problem.error import rmse
from factormer.problem.problem import Problem
from factormer.run import core
from factormer.run import thresholds as T
from factormer.run.beyond import sketch_width, where_rows_are
from factormer.run.multistart import Generations, Halving
from factormer.run.order import canonical
from factormer.run.plan import Plan, View, Way
from factormer.run.request import Limits, Request
from factormer.run.result import Result, Status
from factormer.run.settle import coefficients, misfit_of, settled_by_products
from factormer.run.stages import Stage, solve_in_stages, stride_of
from factormer.run.stop import (
    Decrease,
    Pace,
    Rounding,
    Slowing,
    Stalled,
    Stationary,
    StopRule,
    TimeBudget,
    Watch,
    any_of,
    not_before,
    watched,
)
from factormer.run.trace import Row
from factormer.sentence import Sentence
from factormer.solvers.newton import thinned
from factormer.starts import Given, Initializer, Random, Rotated

_RULES = {"auto": Pace, "gradient": Stationary, "sklearn": Decrease}
_CUT_SHORT = (Status.TIME_LIMIT, Status.INTERRUPTED)


def execute(
    *plans: Plan,
    started: float | None = None,
    callback: Callable[[Row], object] | None = None,
    watch: Watch | None = None,
) -> list[Result]:
    """The result of each plan: the best of its runs, settled, in order and to scale.

    Never worse than the best point that was seen. `started` is a reading of `time.perf_counter()`
    from before the data was read; `callback` gets each row of a trace, `watch` points and trace.
    """
    begun = time.perf_counter() if started is None else started
    with threads():  # everything: torch's own threads, once started, would hang in a forked process
        return [
            (_with_proposals if plan.request.names_network else _one)(plan, begun, callback, watch)
            for plan in plans
        ]


def _with_proposals(
    plan: Plan, started: float, callback: Callable[[Row], object] | None, watch: Watch | None
) -> Result:
    """The result with the count of what networks proposed; warn where none of it was kept."""
    with proposals.counted() as count:
        result = _one(plan, started, callback, watch)
    made, kept = count.so_far
    if not made:
        return result
    if not kept:
        warn(
            Sentence(
                "the network changed nothing: the safeguard refused all of its proposals ({made}), "
                "and the result is the solver's own. Leave the network out, which is faster, or "
                "take its proposals all the same with safeguard='always'",
                made=made,
            ),
            UserWarning,
        )
    return replace(result, proposals=count.so_far)


def _one(
    plan: Plan, started: float, callback: Callable[[Row], object] | None, watch: Watch | None
) -> Result:
    by = _by_core if plan.way is Way.CORE else _by_reference
    return by(plan, started, callback, watch)


@torch.no_grad()
def _by_reference(
    plan: Plan, started: float, callback: Callable[[Row], object] | None, watch: Watch | None
) -> Result:
    """The best run of a plan, settled, by the reference."""
    asked, plan = plan, _thinned(plan)
    request, best, limit = plan.request, None, plan.request.limits.time_limit
    until = None if limit is None else started + limit
    begun, left, there = started, plan.n_runs, where_rows_are(plan)
    for start, seeds in _runs(plan):
        result = _run(there, start, seeds, begun, until, callback, watch)
        left -= len(seeds)
        if best is None or _is_better(result, best):
            best = result
        status = result.status
        if until is not None and time.perf_counter() >= until and left:
            status = Status.TIME_LIMIT
        if status in _CUT_SHORT:
            best = replace(best, status=status)
            break
        begun = time.perf_counter()
    assert best is not None
    result = _tidy(_settled(plan, best, until), request)
    misfit = misfit_of(asked.request.problem, result)
    return replace(result, plan=asked.explanation, misfit=misfit)


def _by_core(
    plan: Plan, started: float, callback: Callable[[Row], object] | None, watch: Watch | None
) -> Result:
    """The best run of a plan, by the compiled core."""
    request = plan.request
    limit, seeds = request.limits.time_limit, [request.seed]
    until = None if limit is None else started + limit
    seeds += more_seeds(request.seed, plan.n_runs)
    result = core.fitted(plan, seeds, started, until, callback, watch)
    misfit = misfit_of(request.problem, result)
    return result if misfit is None else replace(result, misfit=misfit)


def _thinned(plan: Plan) -> Plan:
    """The plan on stored entries alone, if Newton steps are made and most of V is zero."""
    if plan.stages[-1].name != "newton":
        return plan
    request = plan.request
    return replace(plan, request=replace(request, problem=thinned(request.problem)))


def _is_better(result: Result, best: Result) -> bool:
    return bool((result.error < best.error).all())


def _runs(plan: Plan) -> Iterator[tuple[Initializer, list[int | None]]]:
    """Start and seed of each run, or the seeds of several that are made side by side."""
    seeds = [plan.request.seed, *more_seeds(plan.request.seed, plan.n_runs)]
    for first in range(0, len(seeds), plan.at_once):
        yield plan.restart if first else plan.start, seeds[first : first + plan.at_once]


def more_seeds(seed: int | None, n_runs: int) -> list[int]:
    """The seeds of the runs after the first."""
    if n_runs == 1:
        return []
    return [int(s) for s in np.random.SeedSequence(seed).generate_state(n_runs)[1:]]


@readings.counted()
def _run(
    plan: Plan,
    start: Initializer,
    seeds: list[int | None],
    started: float,
    until: float | None,
    callback: Callable[[Row], object] | None,
    watch: Watch | None,
) -> Result:
    """A run, or several, on V divided by its mean, so that nothing depends on the unit of V."""
    request = plan.request
    problem, limits = request.problem, request.limits
    rng = _generator(seeds[0])
    if isinstance(V := problem.V, Blocks) and plan.stages[0].view is View.SKETCH:
        V.sketch(sketch_width(V, problem.rank), rng)  # its mean comes with it
    scaled, mean = problem.normalized()
    check_mean(mean)
    unit = check_unit(problem.unit(mean), mean, request.loss.degree)
    rule = _RULES[request.stop](limits.tol)
    rules: list[StopRule] = [rule]
    if until is not None:
        rules.append(TimeBudget(0.0, since=until))
    if watch is not None:
        rules.append(watched(watch, scaled.V, mean, unit))
    span = T.GENERATION if problem.is_plain else T.LOSS_GENERATION
    span = min(span, max(plan.stages[0].max_iter * 2 // 5, 1)) if len(seeds) > 1 else 0
    stages = _on_views(plan, scaled, rules, rng, 2 * span)
    if start is plan.start and request.x0 is not None:
        start = _given(start, check_start(scaled.scaled_back(request.x0, 1 / mean)))
    on_sketch = isinstance(stages[0].problem.V, LowRank)
    at = _to_start_from(stages) if scaled.is_plain or on_sketch else scaled
    if isinstance(rule, Stationary) and on_sketch and not scaled.is_plain:  # near the end already
        rule.reference = at.stationarity(Random()(at, _generator(seeds[0])))
    if len(seeds) > 1:
        x0, stages[0] = _together(plan, stages[0], span, [rng, *map(_generator, seeds[1:])])
    else:
        x0, *others = _points(start, at, rng)
        if others:
            others = tuple(stages[0].problem.taken(x) for x in others)
            stages[0] = stages[0]._replace(solver=Halving(stages[0].solver, others))
    result = solve_in_stages(
        stages,
        x0,
        started=started,
        stride=stride_of(request),
        callback=callback
        and (
            lambda row: callback(
                row._replace(rmse=unit * row.rmse, gap=getattr(rule, "gap", math.nan))
            )
        ),
    )
    if _is_by_passes(plan) and plan.settles and result.status not in _CUT_SHORT:
        result = settled_by_products(scaled.V, result)  # pyright: ignore[reportArgumentType]
    if isinstance(V := scaled.V, Spread):
        result = replace(result, factors=V.gathered(result.factors))
    x = scaled.scaled_back(result.factors, mean)
    x = Factors(request.on_w.placed(x.W), request.on_h.placed(x.H))  # as scaling changed them
    return replace(result, factors=x, trace=result.trace.scaled(unit), error=unit * result.error)


def _is_by_passes(plan: Plan) -> bool:
    """Whether V is beyond memory, and the solver leaves VH behind, so that W can be settled."""
    problem = plan.request.problem
    return isinstance(problem.V, Blocks) and problem.is_plain and not plan.request.is_settled


@torch.no_grad()
def starting_factors(plan: Plan) -> Factors:
    """The start of a plan, on V itself, without iterations."""
    scaled, mean = plan.request.problem.normalized()
    check_mean(mean)
    return scaled.scaled_back(plan.start(scaled, _generator(plan.request.seed)), mean)


def _on_views(
    plan: Plan, problem: Problem, rules: list[StopRule], rng: torch.Generator, earliest: int
) -> list[Stage]:
    """The stages with their problems: V, V in float32, a sketch of that, and it in float32.

    None converges before the iteration `earliest`, up to which there are several runs.
    """
    stages: list[Stage] = []
    seen = problem
    settled = plan.request.is_settled
    for stage in reversed(plan.stages):
        extra: list[StopRule] = []
        if stage.view is View.SINGLE:
            if not _fits_single_precision(problem):
                continue
            seen = replace(problem, V=problem.V.to(torch.float32))
            extra = [Rounding() if problem.is_plain else Slowing()]
        elif stage.view is View.SKETCH:
            seen, extra = _sketched(seen, problem.V.dtype, plan.request.limits, rng)
        limit = 0 if settled else stage.max_iter
        rule = any_of(*(not_before(earliest, rule) for rule in (*rules, *extra)))
        stages.insert(0, Stage(seen, stage.solver, limit, rule, stage.exact))
        if stage.view is View.SKETCH and not earliest and _gains_from_single(problem):
            single = replace(seen, V=seen.V.to(torch.float32))
            rule = any_of(rule, Rounding())
            stages.insert(0, stages[0]._replace(problem=single, stop=rule))
    return stages


def _gains_from_single(problem: Problem) -> bool:
    """Whether a sketch is so large that its iterations are not compiled as a whole in float64."""
    V, r = problem.V, problem.rank
    double = V.dtype == torch.float64 and V.device.type == "cpu" and not isinstance(V, Blocks)
    work = float(sketch_width(V, r) * sum(V.shape)) if double else 0.0
    return double and not is_small_for(LowRank, V.shape, r, work)


def _sketched(
    problem: Problem, dtype: torch.dtype, limits: Limits, rng: torch.Generator
) -> tuple[Problem, list[StopRule]]:
    """The problem of a sketch of V, and when to leave it."""
    V, p = problem.V, sketch_width(problem.V, problem.rank)
    if not isinstance(V, Blocks):
        return Problem(sketch(V, p, rng).to(dtype), problem.rank), [Stalled()]
    stalled = Stalled() if V.reader.is_at_hand else Stalled(1e-5, 10)
    return Problem(V.sketch(p, rng), problem.rank), [stalled] if limits.tol else []


def _fits_single_precision(problem: Problem) -> bool:
    """Whether the penalties, in the unit of V / mean, are finite in float32."""
    return all(t.fits(torch.float32) for t in (*problem.on_w.terms, *problem.on_h.terms))


def _to_start_from(stages: list[Stage]) -> Problem:
    """The first problem, or of two sketches the one with more digits."""
    sketches = [stage.problem for stage in stages if isinstance(stage.problem.V, LowRank)]
    return sketches[-1] if sketches else stages[0].problem


def _points(start: Initializer, problem: Problem, rng: torch.Generator) -> list[Factors]:
    """The points to start from: several if a sketch makes it cheap to try them."""
    if isinstance(start, Rotated) and isinstance(problem.V, LowRank):
        return start.candidates(problem, rng)
    return [start(problem, rng)]


def _together(
    plan: Plan, stage: Stage, span: int, generators: list[torch.Generator]
) -> tuple[Factors, Stage]:
    """The point to start from, and the stage in which several runs share its view of V."""
    turns = zip(cycle(plan.kinds), generators, strict=False)
    x0, *others = (kind(stage.problem, rng) for kind, rng in turns)
    n_children = math.ceil(T.CHILDREN * len(generators))
    return x0, stage._replace(solver=Generations(stage.solver, tuple(others), n_children, span))


def _given(start: Initializer, x: Factors) -> Initializer:
    """A given start, with the point in another unit."""
    return Given(x) if isinstance(start, Given) else replace(start, base=Given(x))  # pyright: ignore


def _generator(seed: int | None) -> torch.Generator:
    rng = torch.Generator()
    return rng.manual_seed(rng.seed() % 2**63 if seed is None else seed)


# After the iterations


def _settled(plan: Plan, result: Result, until: float | None) -> Result:
    """Make W the best for its components, which is what `transform` would find.

    If time ran out or the run was interrupted, W is that of the last iteration. If the best
    iterate is better, it is kept.
    """
    request = plan.request
    over = result.status in _CUT_SHORT
    if not plan.settles or _is_by_passes(plan) or (over and not request.is_settled):
        return result
    V, (W, H), tick = request.problem.V, result.factors, time.perf_counter()
    if request.is_settled:
        result = replace(result, status=Status.CONVERGED)
    try:
        W, n_iter, whole = coefficients(V, H, request.loss, request.on_w, W, until=until)
    except KeyboardInterrupt:
        return replace(result, status=Status.INTERRUPTED)
    except ValueError:  # numbers so small or large that H cannot be held: the iterations stand
        if request.is_settled:
            raise
        return result
    x = Factors(W, H)
    error = rmse(request.problem, x)
    if not whole:
        result = replace(result, status=Status.TIME_LIMIT)
    better = bool(error <= result.error)
    if request.is_settled:  # these are the iterations
        pace = (time.perf_counter() - tick) / max(n_iter, 1)
        last = (error if better else result.error) / result.trace.unit
        for _ in range(n_iter):
            result.trace.extend(last[None], pace, passes=1)
    return replace(result, factors=x, error=error) if better else result


def _tidy(result: Result, request: Request) -> Result:
    """Order and scale components, unless a start or a penalty fixes them."""
    if request.keeps_order:
        return result
    scale = request.scale if request.is_free else None
    return replace(result, factors=canonical(result.factors, request.order, scale))
