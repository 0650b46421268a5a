"""The paper's claims, decided by the numbers of the JSON files: nothing here is typed by hand."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

MATCHED = 20  # "a fit that it takes the method without acceleration 20 iterations to match"
BASELINE, TRACE = "ao-admm", "ao-admm-trace"

Row = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """Whether a number is at most a bound, or below it if `strict`.

    `is_idle` says that the safeguard dropped every proposal of the network, so that the number is
    the baseline's own: that meets no claim about a network.
    """

    value: float
    bound: float
    strict: bool = False
    is_idle: bool = False

    @property
    def is_met(self) -> bool:
        """Numbers that are not finite meet no bound."""
        if self.is_idle or not math.isfinite(self.value):
            return False
        return self.value < self.bound if self.strict else self.value <= self.bound

    def __str__(self) -> str:
        word = "met" if self.is_met else "**not met**"
        return f"{word} (no proposal kept)" if self.is_idle else word


@dataclass(frozen=True)
class InitClaim:
    """The learned initialization against AO-ADMM at iteration 20, by medians."""

    nndsvd: float
    alone: float
    one_more: float
    matched: float
    worth_alone: int | None  # the iteration at which AO-ADMM is as good, None: not within the run
    worth_one_more: int | None

    @property
    def verdicts(self) -> tuple[Verdict, Verdict]:
        """Of the network alone, and of the network and one iteration."""
        return Verdict(self.alone, self.matched), Verdict(self.one_more, self.matched)


def init_claim(numbers: dict[str, Any], key: str) -> InitClaim:
    """Judge one initialization network on a validation set."""
    rows = numbers["contestants"]
    plain = floats(rows[BASELINE]["rmse"]["median"])
    alone, one_more = floats(rows[key]["rmse"]["median"][:2])
    worth = [next((t for t, e in enumerate(plain) if e <= x), None) for x in (alone, one_more)]
    return InitClaim(plain[0], alone, one_more, plain[MATCHED], *worth)


@dataclass(frozen=True)
class AccelClaim:
    """The learned acceleration against AO-ADMM, by pairwise ratios on the same matrices."""

    median: float  # the largest over iterations 1 … 50
    third_quartile: float  # the largest over iterations 5 … 20

    @property
    def verdicts(self) -> tuple[Verdict, Verdict]:
        """Of the median and of the third quartile."""
        return Verdict(self.median, 1.0, strict=True), Verdict(
            self.third_quartile, 1.0, strict=True
        )


def accel_claim(numbers: dict[str, Any], key: str) -> AccelClaim:
    """Judge the acceleration network on a validation set."""
    ratio = numbers["contestants"][key]["ratio"]
    return AccelClaim(max(floats(ratio["median"][1:51])), max(floats(ratio["q3"][5:21])))


def real_claim(numbers: dict[str, Any], key: str, rival: str = BASELINE) -> Verdict:
    """Judge a contestant on a real matrix: at the last iteration, no worse than the rival."""
    rows = numbers["contestants"]
    return Verdict(last(rows[key]), last(rows[rival]), is_idle=rows[key]["kept"] == 0)


def last(row: Row) -> float:
    """Error at the last iteration."""
    return floats(row["rmse"])[-1]


def lowest(row: Row) -> tuple[float, int]:
    """The lowest error of a run and its iteration."""
    errors = floats(row["rmse"])
    return min(errors), errors.index(min(errors))


def floats(values: Iterable[float | None]) -> list[float]:
    """The numbers of a JSON file, in which None stands for what is not finite."""
    return [math.inf if x is None else float(x) for x in values]
