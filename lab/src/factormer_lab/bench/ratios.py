"""Ratios of paired times: their median, an interval for it, and what follows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

SLOWER = 0.95  # of the upper end of the interval of old/new, below which the new version is slower
LEVEL = 0.95  # of the interval


class Ratio(NamedTuple):
    """The median of ratios, with the interval that holds it with 95 % confidence."""

    median: float
    low: float
    high: float
    pairs: int

    @property
    def verdict(self) -> str:
        """Return "slower", "faster", or "" where neither is shown."""
        return "slower" if self.high < SLOWER else "faster" if self.low > 1 / SLOWER else ""


def confident(ratios: Sequence[float]) -> Ratio:
    """Return the median with its interval between two order statistics.

    The number of ratios below the true median is binomial, whatever their distribution. Fewer than
    six ratios have no such interval, so that the least and the greatest of them stand for it.
    """
    ordered = sorted(ratios)
    n = len(ordered)
    tail, outside = 0.0, 0  # so many ratios at each end are outside
    while (tail := tail + math.comb(n, outside) / 2**n) <= (1 - LEVEL) / 2:
        outside += 1
    outside = max(outside, 1)
    return Ratio(statistics.median(ordered), ordered[outside - 1], ordered[n - outside], n)


def paired(
    old: Callable[[], float],
    new: Callable[[], float],
    *,
    coin: Callable[[], float],
    least: int,
    most: int,
    width: float,
    late: Callable[[int], bool],
) -> list[tuple[float, float]]:
    """Return pairs of times of two turns, which follow each other in random order.

    There are `least` pairs, and more, up to `most`, until the interval of their ratios is narrow:
    its ends differ by the factor `width` at most. None follows once `late`, given how many there
    are, says so.
    """
    pairs: list[tuple[float, float]] = []
    while len(pairs) < most and not late(len(pairs)):
        if coin() < 0.5:
            before = old()
            pairs.append((before, new()))
        else:
            after = new()
            pairs.append((old(), after))
        if len(pairs) >= least:
            ratio = confident([a / b for a, b in pairs])
            if ratio.high <= width * ratio.low:
                break
    return pairs
