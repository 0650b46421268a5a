"""Choices for data beyond memory: how wide a sketch is, and how other losses are served."""

from __future__ import annotations

import math
from dataclasses import replace

from factormer.accelerate.loss_passes import LossPasses
from factormer.accelerate.passes import Passes
from factormer.data import Blocks, Matrix
from factormer.data.outofcore import limit_for
from factormer.data.spread import spread
from factormer.data.svd import OVERSAMPLING
from factormer.run import thresholds as T
from factormer.run.plan import Plan, View
from factormer.run.registry import her_admm
from factormer.run.request import Request
from factormer.sentence import Sentence

_LOSS_SAYS = "one pass over V an iteration, W by Newton steps within it (V is beyond memory)"
_ROWS = 20  # numbers for each row and component: factors and products of two passes, and copies
_MODELS = 3  # of the curvature by H: the sum, what a block adds, and while that is added
_WAITING = 14  # those that a run holds while it waits for a pass: the same without copies


def sketch_width(V: Matrix, rank: int) -> int:
    """Columns of a sketch: few in memory, and if V is beyond it as many as there is room for."""
    p = rank + OVERSAMPLING
    if not isinstance(V, Blocks):
        return p
    (m, n), wide = V.shape, T.WIDTH * rank + OVERSAMPLING
    room = int((_numbers(V) - _ROWS * rank) / _wide(V))
    if room < min(p, m, n):
        need = _least(V, rank)
        raise ValueError(
            Sentence(
                "{rank} is {given}; for V of {m}×{n} its factors, products and sketch take "
                "{need:.2g} bytes, and {memory_limit} leaves {room:.2g}: raise it, or choose a "
                "lower rank ({enough})",
                given=rank,
                m=m,
                n=n,
                need=need,
                room=V.reader.room,
                enough=_enough(V, need),
            )
        )
    return min(wide, room)


def room_beside(V: Blocks, rank: int) -> int:
    """Columns of W and H of all runs on V that wait for a pass, while one of that rank works."""
    p = sketch_width(V, rank)
    return max(rank, int((_numbers(V) - _wide(V) * p - _ROWS * rank) / _WAITING))


def _least(V: Blocks, rank: int) -> int:
    """Bytes of factors, products and the narrowest sketch."""
    p = min(rank + OVERSAMPLING, *V.shape)
    return (_wide(V) * p + _ROWS * rank) * sum(V.shape) * V.dtype.itemsize


def _enough(V: Blocks, need: int) -> str:
    """A memory limit, in words, that leaves so many bytes, and a few for rounding."""
    return f"{math.ceil(1.001 * limit_for(V.reader, float(need)) / 1e5) / 10:g}MB are enough"


def _wide(V: Blocks) -> int:
    """How many matrices as wide as the sketch there are: it, V̂, a copy, on a GPU one to record."""
    return 3 if V.device.type == "cpu" else 4


def _numbers(V: Blocks) -> float:
    """How many numbers there is room for, for each row and column of V."""
    return V.reader.room / V.dtype.itemsize / sum(V.shape)


def where_rows_are(plan: Plan) -> Plan:
    """The plan on rows that stay on Dask workers, where they may; all its runs share a sketch."""
    request, V = plan.request, plan.request.problem.V
    if (
        request.x0 is not None
        or not isinstance(V, Blocks)
        or plan.stages[0].view is not View.SKETCH
    ):
        return plan
    problem = replace(request.problem, V=spread(V, request.problem.rank))
    return replace(plan, request=replace(request, problem=problem))


def passes(V: Blocks) -> Passes:
    """The solver: what comes between two passes costs little only where a pass costs much."""
    if V.device.type != "cpu":
        return Passes(ahead=her_admm())
    return Passes(worth=T.AT_HAND) if V.reader.is_at_hand else Passes()


def loss_passes(request: Request, V: Blocks) -> tuple[LossPasses, str, str]:
    """The solver for another loss, its name and why; an error where there is none."""
    problem, beta = request.problem, request.problem.loss.kernel_beta
    if V.device.type != "cpu":
        raise ValueError(
            Sentence(
                "{loss} is {given}, and V, larger than the memory of {there!r}, travels there in "
                "blocks, for which there is the squared error alone: leave {device} out",
                given=problem.loss,
                there=str(V.device),
            )
        )
    if beta is None or not 1 <= beta < 2 or (V.reader.is_sparse and beta != 1):
        raise ValueError(
            Sentence(
                "{loss} is {given}, and V, a {kind}, is read in blocks, for which there are the "
                "squared error, Kullback–Leibler and, if V is dense, β between 1 and 2: choose one "
                "of these, or raise {memory_limit} so that V fits into memory",
                given=problem.loss,
                kind=V.reader.kind,
            )
        )
    if not problem.is_free or request.is_symmetric or request.solver != "auto":
        raise ValueError(
            Sentence(
                "V, a {kind}, is read in blocks, for which losses other than the squared error "
                "take {solver=auto}, without penalties and symmetry: leave these out, or raise "
                "{memory_limit} so that V fits into memory",
                kind=V.reader.kind,
            )
        )
    n, r = V.shape[1], problem.rank
    need = _MODELS * n * r * r * V.dtype.itemsize
    if need > V.reader.room / 2:
        raise ValueError(
            Sentence(
                "{rank} is {given}; for {n} columns of V the curvature of the loss takes "
                "{need:.2g} bytes, and {memory_limit} leaves {room:.2g}, half of which is for it: "
                "raise it, or choose a lower rank ({enough})",
                given=r,
                n=n,
                need=need,
                room=V.reader.room,
                enough=_enough(V, max(2 * need, _least(V, r))),
            )
        )
    return LossPasses(), "passes", _LOSS_SAYS
