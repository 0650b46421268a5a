"""Curves of planted problems, made once and kept in shards: a stopped run goes on with the next."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from factormer.data import Dense
from factormer.data.files import write
from factormer.select.ranks.curves import N_FEATURES, curves
from factormer_lab.train.rank.planted import SMALL, TRAINING, WIDE, Family, Planted, planted

SHARD = 100  # problems in a shard
LONGEST = 48  # ranks of a curve at most
_TOPS = {"small": 16, "wide": 45}  # the last rank of the curves
HIGH = 50_000  # the number of the first shard in which all problems have high ranks
HELD_OUT = 100_000  # the number of the first shard that is held out; there all problems have fits
FITTED_EVERY = 8  # one problem in so many has fits, which take longest, and so have all of parts
_STRIDE = 3  # of the ranks that are fitted in the wide family


class Shards(NamedTuple):
    """Curves padded to `LONGEST`, their lengths, where the planted rank is, and its family.

    `extra` marks problems of parts that have fits beyond one in `FITTED_EVERY`: only fits can tell
    their rank. To see them as often as others, most of those fits are hidden in each batch.
    """

    features: Float[Tensor, "b k f"]
    length: Int[Tensor, "b"]
    target: Int[Tensor, "b"]
    wide: Int[Tensor, "b"]
    extra: Int[Tensor, "b"]

    @staticmethod
    def cat(some: list[Shards]) -> Shards:
        """Several as one."""
        return Shards(*(torch.cat(list(parts)) for parts in zip(*some, strict=True)))


def load_shards(
    folder: Path, numbers: Sequence[int], wide: int, report: Callable[[int, int], object]
) -> Shards:
    """All shards of these numbers, made where they are not there yet."""
    found = []
    for done, number in enumerate(numbers):
        path = folder / f"curves-{number:04d}.npz"
        if not path.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            _keep(make_shard(number, wide), path)
        found.append(_read(path))
        report(done + 1, len(numbers))
    return Shards.cat(found)


def make_shard(number: int, wide: int) -> Shards:
    """The curves of 100 problems, of which `wide` have high ranks, or all from number `HIGH` on."""
    wide = SHARD if HIGH <= number < HELD_OUT else wide
    features = torch.zeros(SHARD, LONGEST, N_FEATURES)
    length, target, is_wide, extra = (torch.zeros(SHARD, dtype=torch.long) for _ in range(4))
    for place in range(SHARD):
        family = WIDE if place >= SHARD - wide else SMALL
        seed = TRAINING + number * SHARD + place
        problem = planted(family, seed)
        turn = number >= HELD_OUT or seed % FITTED_EVERY == 0
        beyond = problem.factors == "parts" and not turn
        curve = _curve(family, problem, seed, fit=turn or beyond)
        features[place, : len(curve)] = curve
        length[place], target[place] = len(curve), problem.rank - 1
        is_wide[place], extra[place] = family is WIDE, beyond
    return Shards(features, length, target, is_wide, extra)


def _curve(family: Family, problem: Planted, seed: int, *, fit: bool) -> Float[Tensor, "k f"]:
    ranks = range(1, min(_TOPS[family.name], *problem.V.shape) + 1)
    counts = problem.noise in ("poisson", "overdispersed") and seed % 16 < 8
    fit_ranks = list(ranks)[:: _STRIDE if family is WIDE else 1] if fit else []
    V = Dense(torch.from_numpy(problem.V))
    return curves(V, ranks, counts=counts, fit_ranks=fit_ranks, seed=seed).features


def _keep(shards: Shards, path: Path) -> None:
    arrays = {name: part.numpy() for name, part in shards._asdict().items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write(path, buffer.getvalue())


def _read(path: Path) -> Shards:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            shards = Shards(*(torch.from_numpy(arrays[name]) for name in Shards._fields))
    except Exception as error:
        raise ValueError(
            f"{path} holds no curves of this program, or is damaged ({error}); remove it to make "
            "them again"
        ) from error
    if shards.features.shape[1:] != (LONGEST, N_FEATURES):
        raise ValueError(
            f"{path} has curves of shape {tuple(shards.features.shape[1:])}, and those of this "
            f"version have {(LONGEST, N_FEATURES)}; remove it to make them again"
        )
    return shards
