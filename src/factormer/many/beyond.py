"""Many factorizations of one V beyond memory: each pass over V serves all that are under way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch

from factormer.data import Blocks
from factormer.data.together import in_turns
from factormer.kernels.threads import threads
from factormer.many.jobs import Jobs
from factormer.run.beyond import room_beside, sketch_width
from factormer.run.execute import execute
from factormer.run.plan import Plan, View
from factormer.run.result import Result


def groups(jobs: Jobs, indices: list[int]) -> Iterator[list[int]]:
    """Jobs of one V by how many can be under way at once, within its memory limit."""
    V = jobs.source(int(jobs.problem[indices[0]]))
    assert isinstance(V, Blocks)
    columns = room_beside(V, max(int(jobs.rank[k]) for k in indices))
    group: list[int] = []
    taken = 0
    for k in indices:
        rank = int(jobs.rank[k])
        if group and taken + rank > columns:
            yield group
            group, taken = [], 0
        group.append(k)
        taken += rank
    yield group


def factorized(
    jobs: Jobs, group: list[int], ready: Callable[[int], Plan], is_ended: Callable[[], bool]
) -> Iterator[tuple[int, Result]]:
    """Jobs with one V as they end; `ready` makes the plan of each, of which V is replaced."""
    plans = [ready(k) for k in group]
    V = plans[0].request.problem.V
    assert isinstance(V, Blocks)
    with threads():
        wide = max(plans, key=lambda plan: plan.request.problem.rank)
        if any(plan.stages[0].view is View.SKETCH for plan in plans):
            rng = torch.Generator().manual_seed(int(jobs.seed[group[0]]))
            V.sketch(sketch_width(V, wide.request.problem.rank), rng)
        V.total()  # which is known then, or takes a pass
        for k, result in in_turns(V, [partial(_one, plan, is_ended) for plan in plans]):
            yield group[k], result


def _one(plan: Plan, is_ended: Callable[[], bool], V: Blocks) -> Result:
    """Return what a single call would, but for the sketch that all share."""
    request = plan.request
    plan = replace(plan, request=replace(request, problem=replace(request.problem, V=V)))
    (result,) = execute(plan, watch=lambda *_: is_ended())
    return result
