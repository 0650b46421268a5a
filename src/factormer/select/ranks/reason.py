"""The sentences that say why a rank was chosen."""

from __future__ import annotations

import numpy as np

from factormer.select.ranks.criteria import Criterion

_LIKELY = 0.1  # probability from which another rank is named


def reason_of(
    rank: int,
    clear: bool,
    probabilities: dict[int, float],
    rules: dict[str, Criterion],
    curves: dict[str, np.ndarray],
    untried: list[int],
) -> str:
    """Say what was chosen, what the data shows at that rank, and who agrees.

    `untried` are the ranks beside it that were not among those to choose from.
    """
    ranks = list(probabilities)
    if len(ranks) == 1:
        return f"{_count(rank)}: the only rank that was asked for, so nothing was compared."
    chance = _percent(probabilities[rank])
    text = [_opening(rank, clear, chance, probabilities), _seen(rank, ranks, curves)]
    agreeing = [name for name, rule in rules.items() if rule.rank == rank]
    if agreeing:
        text.append(f"The same is chosen by {_listed(agreeing)}.")
    else:
        low, high = (f(rule.rank for rule in rules.values()) for f in (min, max))
        text.append(f"No classical rule chooses the same: they say {low} to {high}.")
    if untried:
        text.append(_advice(rank, ranks, untried))
    elif not clear:
        named = _listed([str(k) for k in candidates(rank, clear, probabilities)])
        text.append(f"Look at the components of ranks {named} before you settle on one.")
    return " ".join(text)


def candidates(rank: int, clear: bool, probabilities: dict[int, float]) -> list[int]:
    """The rank chosen and, where it is not clear, the others that are likely, or its neighbours."""
    if clear or len(probabilities) == 1:
        return [rank]
    others = [k for k, p in probabilities.items() if k != rank and p >= _LIKELY]
    return sorted([rank, *(others or {rank - 1, rank + 1} & set(probabilities))])


def _advice(rank: int, ranks: list[int], untried: list[int]) -> str:
    """Which ranks to try too."""
    if rank == ranks[-1] and rank + 1 in untried:
        return "It is the largest rank that was tried: try larger ones too."
    if rank == ranks[0] and rank - 1 in untried:
        return "It is the smallest rank that was tried: try smaller ones too."
    return f"Try {_listed([str(k) for k in untried])} too, beside it."


def exact_reason(rank: int) -> str:
    """For data without noise that one or two components make up."""
    return f"{_count(rank)}: V is exactly of rank {rank}, up to rounding."


def _opening(rank: int, clear: bool, chance: str, probabilities: dict[int, float]) -> str:
    if clear:
        return f"{_count(rank)} ({chance} sure)."
    others = sorted(
        ((p, k) for k, p in probabilities.items() if k != rank and p >= _LIKELY), reverse=True
    )
    if not others:
        return f"Probably {_count(rank)} ({chance}), but this is not clear."
    named = _listed([f"{k} ({_percent(p)})" for p, k in others])
    return f"Probably {_count(rank)} ({chance}), but it could also be {named}."


def _seen(rank: int, ranks: list[int], curves: dict[str, np.ndarray]) -> str:
    place = ranks.index(rank)
    own, stability = curves["over_noise"][place], curves["stability"][place]
    text = f"Component {rank} is {own:.2f} times as large as noise alone would make it"
    if place + 1 < len(ranks) and ranks[place + 1] == rank + 1:
        after = curves["over_noise"][place + 1]
        if after < own:
            text += f", component {rank + 1} would be {after:.2f} times"
        else:
            text = (
                f"Size does not tell component {rank} from component {rank + 1} ({own:.2f} and "
                f"{after:.2f} times what noise alone would make), so the choice rests on all curves"
            )
    error = curves["error"][place]
    return (
        f"{text}; other starts find the components again with a similarity of {stability:.2f}, and "
        f"{_explained(1 - float(error) ** 2)} of V is explained."
    )


def _count(rank: int) -> str:
    return f"{rank} component{'' if rank == 1 else 's'}"


def _percent(p: float) -> str:
    return "over 99 %" if p > 0.995 else f"{100 * p:.0f} %"


def _explained(share: float) -> str:
    """Never rounded up to all of it."""
    if share <= 0.99:
        return f"{100 * share:.0f} %"
    return f"{100 * share:.1f} %" if share < 0.9995 else "over 99.9 %"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
