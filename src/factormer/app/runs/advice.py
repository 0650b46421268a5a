"""Which of the ranks of a run to take, and why: the rule is always said."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from factormer.app.runs.folder import RankResult
from factormer.app.runs.trust import validated
from factormer.problem.losses import as_loss

# Those of SigProfilerExtractor (Islam et al., 2022): from here on components count as stable.
_MEAN, _LEAST = 0.8, 0.2
_OF_STARTS = (
    "The runs of --repeats differ only in their starts, which tells nothing about noise in the "
    "data, so their stability recommends no rank."
)


class Advice(NamedTuple):
    """A rank, what speaks for it, and the reason in words.

    `by` is "network" (a choice that `select_rank` made), "hidden" (errors of hidden entries),
    "stability" (of components over several runs on new draws of the data), or "bend" (of the error
    curve, a place to begin looking). `rank` is one that was fitted, unless the network chose
    another.
    """

    rank: int
    by: str
    text: str


def advised(
    results: Sequence[RankResult], options: dict[str, Any], choice: dict[str, Any] | None = None
) -> Advice | None:
    """The rank to take; None where there is but one, and nobody chose it.

    The network's choice comes first, then hidden entries, then stability, then the error curve;
    what the others say is told too.
    """
    hidden, stable = _hidden(results, options), _stable(results, options)
    asked = (_chosen(choice), hidden, stable)
    found = [advice for advice in asked if advice is not None]
    if not found:
        found = [advice for advice in [_bend(results, options)] if advice is not None]
    if not found:
        return None
    first, *others = found
    text = [first.text, *(_beside(x, first.rank) for x in others)]
    if stable is None and sum(bool(r.stability) for r in results) > 1:
        text.append(_OF_STARTS)
    return first._replace(text=" ".join(text))


def _beside(other: Advice, rank: int) -> str:
    """Say whether another rule, which does not decide, agrees."""
    rule = {"hidden": "The error of hidden entries", "stability": "Stability"}[other.by]
    says = "agrees" if other.rank == rank else f"would take rank {other.rank} instead"
    return f"{rule} {says}: {other.text[0].lower()}{other.text[1:]}"


def bend(results: Sequence[RankResult]) -> int:
    """Return the bend of the error curve: the point farthest below the line between its ends.

    The error is the square root of what was minimised.
    """
    if len(results) < 3:
        return len(results) - 1
    ranks = np.array([result.rank for result in results], dtype=np.float64)
    errors = np.sqrt([max(result.objective, 0.0) for result in results])
    if not np.isfinite(errors).all():  # squares that overflow
        errors = np.array([result.relative_error for result in results])
    chord = np.interp(ranks, ranks[[0, -1]], errors[[0, -1]])
    return int(np.argmax(chord - errors))


def _chosen(choice: dict[str, Any] | None) -> Advice | None:
    if choice is None:
        return None
    return Advice(int(choice["rank"]), "network", str(choice["reason"]))


def _hidden(results: Sequence[RankResult], options: dict[str, Any]) -> Advice | None:
    found = validated(results, options["loss"], options.get("holdout") or 0.0)
    if found is None or len(found.ranks) < 2:
        return None
    as_good = [int(rank) for rank in found.ranks_as_good]
    if found.rank == found.rank_1se:
        text = f"Hidden entries are predicted best at rank {found.rank}"
        is_clear = found.ranks[0] < found.rank == as_good[0]
        text += ", and clearly worse at every smaller one." if is_clear else "."
    else:
        text = (
            "It is the smallest rank that predicts hidden entries as well as the best one, "
            f"{found.rank}, within one standard error."
        )
    if len(as_good) > 1:
        text += (
            f" Hidden entries do not tell ranks {_named(as_good)} apart: another seed may "
            "recommend another of them."
        )
    if found.rank == found.ranks[-1]:
        text += f" As {found.rank} is the largest rank that was tried, try larger ones too."
    elif found.rank_1se == found.ranks[0] > 1:
        text += " It is the smallest rank that was tried: try smaller ones too."
    return Advice(found.rank_1se, "hidden", text)


def _stable(results: Sequence[RankResult], options: dict[str, Any]) -> Advice | None:
    have = [(r.rank, np.array(r.stability)) for r in results if r.stability]
    if len(have) < 2 or options.get("resample", "none") == "none":
        return None
    stable = [rank for rank, s in have if s.mean() >= _MEAN and s.min() >= _LEAST]
    if not stable:
        rank, s = max(have, key=lambda one: float(one[1].mean()))
        return Advice(
            rank,
            "stability",
            f"At no rank do all runs find the same components; the most stable is {rank}, with a "
            f"mean stability of {s.mean():.2f}.",
        )
    rank = max(stable)
    text = (
        f"It is the largest rank at which runs on new draws of the data agree (a mean stability of "
        f"{_MEAN:g} or more, and no component below {_LEAST:g})."
    )
    return Advice(rank, "stability", text + _edge(rank, [k for k, _ in have]))


def _named(ranks: list[int]) -> str:
    """Name two ranks or more in ascending order, three in a row and more as a range."""
    parts: list[str] = []
    for _, run in groupby(enumerate(ranks), lambda pair: pair[1] - pair[0]):
        row = [rank for _, rank in run]
        parts += [f"{row[0]} to {row[-1]}"] if len(row) > 2 else map(str, row)
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _edge(rank: int, ranks: Sequence[int]) -> str:
    """Say if a rank is the largest or the smallest that was tried."""
    if rank == max(ranks):
        return f" As {rank} is the largest rank that was tried, try larger ones too."
    if rank == min(ranks) > 1:
        return f" As {rank} is the smallest rank that was tried, try smaller ones too."
    return ""


def _bend(results: Sequence[RankResult], options: dict[str, Any]) -> Advice | None:
    if len(results) < 2:
        return None
    rank = results[bend(results)].rank
    more = "--rank select, --holdout 0.1 or --repeats 20 say more."
    if options.get("repeats") is not None:
        more = "--rank select or --holdout 0.1 say more."
    if len(results) < 3:
        return Advice(rank, "bend", f"Shown first is rank {rank}, the larger of two; {more}")
    error = "error" if as_loss(options["loss"]).is_quadratic else "root of the loss"
    return Advice(
        rank,
        "bend",
        f"Shown first is rank {rank}, where the curve of the {error} bends most: a place to begin "
        f"looking, no more than that; {more}",
    )
