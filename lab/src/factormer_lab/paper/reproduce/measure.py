"""Run a contestant and record its error and its seconds at every iteration."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Collection
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import n_entries
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.solvers.loop import loop
from factormer_lab.paper.reproduce.contestants import Contestant, Witness
from factormer_lab.train.synthetic import Stack

_CHUNK = 16  # problems run at once: bounds the memory that attention takes


class Run(NamedTuple):
    """A contestant on one problem or on a stack: iteration 0 is its start, a network's included."""

    rmse: Float[Tensor, "t *b"]
    seconds: Float[Tensor, " t"]  # of the start, then of each iteration; measuring is off the clock
    kept: float | None  # share of the networks' proposals that the safeguard accepted
    points: dict[int, Factors]


@torch.no_grad()
def run(
    contestant: Contestant,
    problem: Problem,
    x0: Factors,
    *,
    n_iter: int,
    keep: Collection[int] = (),
) -> Run:
    """Run from the NNDSVD start x0, keeping the points of the iterations in `keep`."""
    witness = Witness(contestant.safeguard)
    errors, seconds, points = [], [], {}
    tick = time.perf_counter()
    start = contestant.start(problem, x0, witness)
    for look in loop(problem, contestant.engine(witness), start, limit=n_iter):
        seconds.append(time.perf_counter() - tick)
        errors.append(problem.rmse(look.factors))
        if look.t in keep:
            points[look.t] = look.factors
        tick = time.perf_counter()
    return Run(torch.stack(errors), torch.tensor(seconds).double(), witness.kept, points)


def run_stack(contestant: Contestant, stack: Stack, *, n_iter: int) -> Run:
    """Run on every problem of a stack, similar sizes together, since padding costs time."""
    order = n_entries(stack.problem.V).argsort()
    chunks = [stack.select(index, crop=True) for index in order.split(_CHUNK)]
    runs = [run(contestant, c.problem, c.x0, n_iter=n_iter) for c in chunks]
    shares = [
        r.kept * len(c) / len(stack)
        for r, c in zip(runs, chunks, strict=True)
        if r.kept is not None
    ]
    return Run(
        rmse=torch.cat([r.rmse for r in runs], dim=1),
        seconds=torch.stack([r.seconds for r in runs]).sum(dim=0),
        kept=sum(shares) if shares else None,
        points={},
    )


def costs(contestant: Contestant, run: Run) -> dict[str, float]:
    """Seconds of the networks in all, of a plain iteration, and of the whole run."""
    first = 1 + contestant.n_accel
    iteration = run.seconds[first:].median().item()
    network = run.seconds[1:first].sum().item() - contestant.n_accel * iteration
    network += run.seconds[0].item() if contestant.init else 0.0
    total = run.seconds.sum().item()
    return {"network": max(network, 0.0), "iteration": iteration, "total": total}


def quartiles(values: Float[Tensor, "t b"]) -> dict[str, list[float]]:
    """First quartile, median and third quartile over the problems, for each iteration."""
    q = torch.tensor([0.25, 0.5, 0.75], dtype=values.dtype)
    rows = values.quantile(q, dim=1)
    return dict(zip(("q1", "median", "q3"), rows.tolist(), strict=True))


def rounded(value: Any, digits: int = 6) -> Any:
    """Round numbers for a JSON file: `digits` significant ones, None for what is not finite."""
    if isinstance(value, dict):
        return {key: rounded(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item, digits) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value


def compact(value: Any, indent: str = "") -> str:
    """JSON with one line per key, and a list of numbers on one line."""
    if not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    deeper = indent + " "
    items = [
        f"{deeper}{json.dumps(key, ensure_ascii=False)}: {compact(item, deeper)}"
        for key, item in value.items()
    ]
    return "{\n" + ",\n".join(items) + f"\n{indent}}}"
