"""How many iterations the network saves, on problems that it was not trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.accelerate.base import Restarted
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer_lab.train.anyrank.problems import (
    STARTS,
    SYNTHETIC,
    Bucket,
    Shape,
    Source,
    draw_bucket,
)
from factormer_lab.train.anyrank.rollout import trajectory

SHAPES = ((40, 30, 2), (25, 25, 5), (120, 70, 5), (60, 40, 10), (200, 150, 10), (300, 60, 16))
SHAPES += ((90, 128, 20), (128, 160, 32), (250, 180, 64))
_SEED = 99_000_001
TOLERANCES = {
    "1 %": (1e-2, 1e-3),
    "0.1 %": (1e-3, 1e-4),
}  # relative to the best, or to the mean of V

Draw = Callable[[Shape, int, torch.Generator, Source], Bucket]


class Comparison(NamedTuple):
    """For each tolerance, iterations of the network over those of the classical engine."""

    ratios: dict[str, Float[Tensor, " b"]]
    refused: Float[Tensor, " b"]
    labels: dict[str, list[str]]  # kind, rank, size and start of each problem


def iterations(
    errors: Mapping[str, Float[Tensor, "t b"]], share: float, floor: float
) -> dict[str, Float[Tensor, " b"]]:
    """Iterations of each to an error within a share of the best of all; twice all if never."""
    best = torch.stack([e.amin(dim=0) for e in errors.values()]).amin(dim=0)
    target = ((1 + share) * best).clamp(min=floor)
    counts = {}
    for name, e in errors.items():
        reached = e <= target
        first = reached.float().argmax(dim=0) + 1.0
        counts[name] = torch.where(reached.any(dim=0), first, 2.0 * len(e))
    return counts


def ratios_of(
    network: Restarted, classical: Restarted, problem: Problem, x0: Factors, n_iter: int
) -> tuple[dict[str, Float[Tensor, " b"]], Float[Tensor, " b"]]:
    """For each tolerance, iterations of one engine over those of the other; and refused shares."""
    errors, refused = trajectory(network, problem, x0, n_iter)
    others, _ = trajectory(classical, problem, x0, n_iter)
    ratios = {}
    for name, (share, floor) in TOLERANCES.items():
        counts = iterations({"network": errors, "classical": others}, share, floor)
        ratios[name] = (counts["network"] / counts["classical"]).cpu()
    return ratios, refused.mean(dim=0).cpu()


@torch.no_grad()
def compare(
    network: Restarted,
    classical: Restarted,
    *,
    device: torch.device,
    per_kind: int = 16,
    n_iter: int = 120,
    shapes: tuple[tuple[int, int, int], ...] = (),
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    source: Source = SYNTHETIC,
    draw: Draw = draw_bucket,
) -> Comparison:
    """Both engines from the same starts on problems of all kinds; by default of SHAPES."""
    rng = torch.Generator(device).manual_seed(_SEED + seed)
    ratios: dict[str, list[Tensor]] = {name: [] for name in TOLERANCES}
    refusals, labels = [], {"kind": [], "rank": [], "size": [], "start": []}
    for shape in dict.fromkeys(source.fitting(shape) for shape in shapes or SHAPES):
        m, n, r = shape
        bucket = draw(shape, per_kind, rng, source)
        problem = bucket.of(bucket.V.to(dtype))
        x0 = Factors(*(F.to(dtype) for F in bucket.x0))
        found, refused = ratios_of(network, classical, problem, x0, n_iter)
        for name, ratio in found.items():
            ratios[name].append(ratio)
        refusals.append(refused)
        labels["kind"] += [source.names[i] for i in bucket.kinds.tolist()]
        labels["start"] += [STARTS[i] for i in bucket.starts.tolist()]
        labels["rank"] += [f"rank {r}"] * len(bucket.V)
        labels["size"] += [f"{m}×{n}"] * len(bucket.V)
    return Comparison(
        {name: torch.cat(values) for name, values in ratios.items()}, torch.cat(refusals), labels
    )


def figures(comparison: Comparison) -> dict[str, Any]:
    """Geometric means of the ratios, over all and by kind, rank, size and start."""
    found: dict[str, Any] = {"iterations beside the classical engine": _means(comparison)}
    for label, values in comparison.labels.items():
        found[f"by {label}"] = {
            value: _means(comparison, torch.tensor([v == value for v in values]))
            for value in dict.fromkeys(values)
        }
    found["refused"] = round(float(comparison.refused.mean()), 3)
    return found


def _means(comparison: Comparison, members: Tensor | None = None) -> dict[str, float]:
    chosen = slice(None) if members is None else members
    return {
        f"to {name}": round(float(ratio[chosen].log().mean().exp()), 3)
        for name, ratio in comparison.ratios.items()
    }
