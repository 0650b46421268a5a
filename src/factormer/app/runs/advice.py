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
ASKED = {
    "network": "Which rank do errors, noise, held-out blocks and other starts point to together?",
    "hidden": "Which is the smallest rank that predicts hidden entries as well as any?",
    "stability": "Up to which rank do runs on new draws of the data find the same components?",
}
NAMES = {
    "network": "the network that reads all curves",
    "hidden": "the error of hidden entries",
    "stability": "stability under new draws",
}
_FIRST = " The first answer decides: on data with planted ranks that rule is right most often."
_OF_BOTH = (
    " The first answer is not clear, so the one that is most probable among the ranks that hidden "
    "entries do not tell from the best is taken."
)


class Rule(NamedTuple):
    """A rule, the rank it takes, and what it saw, in words.

    `by` is "network" (a choice that `select_rank` made), "hidden" (errors of hidden entries) or
    "stability" (of components over several runs on new draws of the data).
    """

    by: str
    rank: int
    text: str


class Advice(NamedTuple):
    """A rank, the rule that decided, why, and what every rule says.

    `text` is what the rule saw, or, of several rules, what each asks, answers, and which decides.

    `by` is that of a `Rule`, or "bend" (of the error curve, a place to begin looking). `rank` is
    one that was fitted, unless the network chose another.
    """

    rank: int
    by: str
    text: str
    rules: tuple[Rule, ...] = ()


def advised(
    results: Sequence[RankResult], options: dict[str, Any], choice: dict[str, Any] | None = None
) -> Advice | None:
    """The rank to take; None where there is but one, and nobody chose it.

    A clear choice of the network decides. One that is not clear gives way to the most probable of
    the ranks that hidden entries do not tell from the best. Without a network hidden entries
    decide, then stability, then the error curve.
    """
    rules = rules_of(results, options, choice)
    of_starts = [_OF_STARTS] if _of_starts(results, options) else []
    if not rules:
        found = _bend(results, options)
        return found and found._replace(text=" ".join([found.text, *of_starts]))
    first, *others = rules
    rank, by, why = first.rank, first.by, ""
    hidden = next((rule for rule in others if rule.by == "hidden"), None)
    if choice is not None and not choice["clear"] and hidden is not None and _differ(rules):
        rank = _most_probable(results, options, choice)
        by = "network" if rank == first.rank else "hidden"
        why = _OF_BOTH
    elif others:
        why = _FIRST
    text = first.text
    if others:
        text = _together(rules, rank) + (why if _differ(rules) else "")
    return Advice(rank, by, " ".join([text, *of_starts]), tuple(rules))


def rules_of(
    results: Sequence[RankResult], options: dict[str, Any], choice: dict[str, Any] | None = None
) -> list[Rule]:
    """What each rule says that can be asked, the one that is right most often first."""
    asked = (_chosen(choice), _hidden(results, options), _stable(results, options))
    return [rule for rule in asked if rule is not None]


def _differ(rules: Sequence[Rule]) -> bool:
    return len({rule.rank for rule in rules}) > 1


def _together(rules: Sequence[Rule], rank: int) -> str:
    """Say what the rules ask and answer, in one sentence."""
    if not _differ(rules):
        *names, last = [NAMES[rule.by] for rule in rules]
        text = f"{', '.join(names)} and {last} agree on rank {rank}."
        return text[0].upper() + text[1:]
    answers = " ".join(f"{ASKED[rule.by]} {rule.rank}." for rule in rules)
    return f"Rules that ask different questions differ here. {answers}"


def _most_probable(
    results: Sequence[RankResult], options: dict[str, Any], choice: dict[str, Any]
) -> int:
    """The rank that the network holds most probable among those that predict hidden entries."""
    found = validated(results, options["loss"], options.get("holdout") or 0.0)
    assert found is not None
    chances = choice.get("probabilities", {})
    as_good = [int(rank) for rank in found.ranks_as_good]
    return max(as_good, key=lambda rank: (chances.get(str(rank), 0.0), -rank))


def _of_starts(results: Sequence[RankResult], options: dict[str, Any]) -> bool:
    """Whether runs of several ranks differ only in their starts."""
    several = sum(bool(r.stability) for r in results) > 1
    return several and options.get("resample", "none") == "none"


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


def _chosen(choice: dict[str, Any] | None) -> Rule | None:
    if choice is None:
        return None
    return Rule("network", int(choice["rank"]), str(choice["reason"]))


def _hidden(results: Sequence[RankResult], options: dict[str, Any]) -> Rule | None:
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
    return Rule("hidden", found.rank_1se, text)


def _stable(results: Sequence[RankResult], options: dict[str, Any]) -> Rule | None:
    have = [(r.rank, np.array(r.stability)) for r in results if r.stability]
    if len(have) < 2 or options.get("resample", "none") == "none":
        return None
    stable = [rank for rank, s in have if s.mean() >= _MEAN and s.min() >= _LEAST]
    if not stable:
        rank, s = max(have, key=lambda one: float(one[1].mean()))
        return Rule(
            "stability",
            rank,
            f"At no rank do all runs find the same components; the most stable is {rank}, with a "
            f"mean stability of {s.mean():.2f}.",
        )
    rank = max(stable)
    text = (
        f"It is the largest rank at which runs on new draws of the data agree (a mean stability of "
        f"{_MEAN:g} or more, and no component below {_LEAST:g})."
    )
    return Rule("stability", rank, text + _edge(rank, [k for k, _ in have]))


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
