"""How many points networks proposed, and how many of them their safeguard kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

from jaxtyping import Bool
from torch import Tensor

from factormer.accelerate.base import Safeguard
from factormer.data.factors import Factors
from factormer.problem.problem import Problem


class Proposals(NamedTuple):
    """Proposals of networks: made, and kept; of a stack, those of all its matrices."""

    made: int = 0
    kept: int = 0


class Count:
    """A count of proposals, to which several threads may add."""

    def __init__(self) -> None:
        self.so_far = Proposals()
        self._lock = Lock()

    def add(self, made: int, kept: int) -> None:
        with self._lock:
            self.so_far = Proposals(self.so_far.made + made, self.so_far.kept + kept)


_count: ContextVar[Count | None] = ContextVar("proposals", default=None)


@contextmanager
def counted() -> Iterator[Count]:
    """Count the proposals within the block, also those on threads that share its work."""
    count = Count()
    before = _count.set(count)
    try:
        yield count
    finally:
        _count.reset(before)


@dataclass(frozen=True)
class Counted:
    """A safeguard whose decisions are counted."""

    safeguard: Safeguard

    def accept(
        self, problem: Problem, *, stepped: Factors, proposed: Factors
    ) -> Bool[Tensor, "*b"]:
        accepted = self.safeguard.accept(problem, stepped=stepped, proposed=proposed)
        count = _count.get()
        if count is not None:
            count.add(accepted.numel(), int(accepted.sum()))
        return accepted
