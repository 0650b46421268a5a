"""Several runs on one V in blocks: they work in turn, and a pass serves all that wait for one.

Each run is a thread, since it is the code of a single run, but only one works at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from threading import Semaphore, Thread
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from factormer.data.blocks import Blocks, Record
from factormer.data.parts import Part, Parts, Updated, times, turned_times

A = TypeVar("A")
Swept = tuple[list[Tensor], list[Tensor]]


class Asked(NamedTuple):
    """The wish of a run for the next pass."""

    part: Part
    rows: tuple[Tensor, ...]
    dtype: torch.dtype


@dataclass(frozen=True, eq=False)
class Together:
    """Several parts in one reading; each takes as many tensors by rows as `counts` says.

    Those that update W have their columns side by side in two products.
    """

    parts: tuple[Any, ...]
    counts: tuple[int, ...]

    def __call__(self, block: Any, *rows: Tensor) -> Parts:
        left = iter(rows)
        given = [list(islice(left, count)) for count in self.counts]
        wide = [k for k, part in enumerate(self.parts) if isinstance(part, Updated)]
        updated = _updated([self.parts[k] for k in wide], block, [given[k] for k in wide])
        found = dict(zip(wide, updated, strict=True))
        for k, part in enumerate(self.parts):
            if k not in found:
                found[k] = part(block, *given[k])
        both = [found[k] for k in range(len(self.parts))]
        return tuple(F for joined, _ in both for F in joined), tuple(
            F for _, summed in both for F in summed
        )

    def apart(self, joined: list[Tensor], summed: list[Tensor]) -> Iterator[Swept]:
        """Yield what a pass returned, as each part would have it."""
        by_rows, sums = iter(joined), iter(summed)
        for part in self.parts:
            n_rows, n_sums = part.makes
            yield list(islice(by_rows, n_rows)), list(islice(sums, n_sums))


def _updated(parts: list[Updated], block: Any, rows: list[list[Tensor]]) -> Iterator[Parts]:
    """Several updates of W on one block; what `Updated` does one by one."""
    if not parts:
        return
    widths = [part.H.shape[1] for part in parts]
    VH = times(block, torch.cat([part.H for part in parts], 1)).split(widths, 1)
    halves = [part.half(block, V, *some) for part, V, some in zip(parts, VH, rows, strict=True)]
    VtW = turned_times(block, torch.cat([W for (_, W), _ in halves], 1)).split(widths, 1)
    for part, (joined, error), F in zip(parts, halves, VtW, strict=True):
        yield joined, (part.c * F, error)


def in_turns(V: Blocks, calls: Sequence[Callable[[Blocks], A]]) -> Iterator[tuple[int, A]]:
    """Yield what the calls return, as they end; each is called with a V of its own.

    A pass is made once all that are left wait for one. The sums of V must be known. After Ctrl-C,
    KeyboardInterrupt is raised in all of them, and once they have ended here.
    """
    runs = [_Run(V, call) for call in calls]
    answers: list[Swept | BaseException] = [([], [])] * len(runs)
    left, interrupted = list(range(len(runs))), False
    try:
        while left:
            for k in left:
                interrupted |= runs[k].go(KeyboardInterrupt() if interrupted else answers[k])
            for k in [k for k in left if runs[k].is_done]:
                left.remove(k)
                if runs[k].has_nothing:
                    interrupted = True
                else:
                    yield k, runs[k].value()
            try:
                if interrupted:
                    raise KeyboardInterrupt
                made = _made(V, {k: runs[k].asked for k in left})
                answers = [made.get(k, ([], [])) for k in range(len(runs))]
            except KeyboardInterrupt as error:
                interrupted = True
                answers = [error for _ in runs]
    finally:
        for k in left:  # an error, or nobody wants more: no thread stays behind
            while not runs[k].is_done:
                runs[k].go(KeyboardInterrupt())
    if interrupted:
        raise KeyboardInterrupt


@torch.no_grad()
def _made(V: Blocks, asked: dict[int, Asked | None]) -> dict[int, Swept]:
    """The results of one pass for each run, or of one for each precision."""
    wanted = {k: a for k, a in asked.items() if a is not None}
    made: dict[int, Swept] = {}
    for dtype in {a.dtype for a in wanted.values()}:
        some = {k: a for k, a in wanted.items() if a.dtype == dtype}
        all_parts = tuple(a.part for a in some.values())
        part = Together(all_parts, tuple(len(a.rows) for a in some.values()))
        rows = [F for a in some.values() for F in a.rows]
        swept = part.apart(*V.to(dtype).sweep(part, *rows))
        made |= dict(zip(some, swept, strict=True))
    return made


class _Run(Generic[A]):
    """A call in a thread of its own that works only between two passes; the reader of its V."""

    def __init__(self, V: Blocks, call: Callable[[Blocks], A]) -> None:
        self.asked: Asked | None = None
        self.is_done = False
        self._reader = V.reader
        self._result: A | None = None
        self._error: BaseException | None = None
        self._turn, self._back = Semaphore(0), Semaphore(0)
        self._answer: Swept | BaseException = [], []
        record = Record(sums=V.record.sums, sketch=V.record.sketch)
        own = replace(V, reader=self, record=record)
        Thread(target=self._work, args=(call, own), daemon=True).start()

    def go(self, answer: Swept | BaseException) -> bool:
        """Let it work, with what its pass returned, until it wants another one, or ends.

        Whether Ctrl-C came in the meantime.
        """
        self._answer, interrupted = answer, False
        self._turn.release()
        while True:
            try:
                self._back.acquire()
                return interrupted
            except KeyboardInterrupt:
                interrupted = True

    @property
    def has_nothing(self) -> bool:
        """Whether it was interrupted before it had anything to return."""
        return isinstance(self._error, KeyboardInterrupt)

    def value(self) -> A:
        """Return what the call returned, or raise what it raised."""
        if self._error is not None:
            raise self._error
        return self._result  # pyright: ignore[reportReturnType]

    def _work(self, call: Callable[[Blocks], A], V: Blocks) -> None:
        self._turn.acquire()
        try:
            if isinstance(self._answer, BaseException):
                raise self._answer  # it is over before it began
            self._result = call(V)
        except BaseException as error:
            self._error = error
        self.is_done = True
        self._back.release()

    # What makes it a `Reader`

    @property
    def shape(self) -> tuple[int, int]:
        return self._reader.shape

    @property
    def itemsize(self) -> int:
        return self._reader.itemsize

    @property
    def entries(self) -> float:
        return self._reader.entries

    @property
    def kind(self) -> str:
        return self._reader.kind

    @property
    def is_sparse(self) -> bool:
        return self._reader.is_sparse

    @property
    def is_at_hand(self) -> bool:
        return self._reader.is_at_hand

    @property
    def device(self) -> torch.device:
        return self._reader.device

    @property
    def room(self) -> float:
        return self._reader.room

    def sweep(
        self, part: Part, rows: tuple[Tensor, ...], dtype: torch.dtype, *, survey: bool
    ) -> Swept:
        """Ask for a pass and wait for it."""
        assert not survey, "the sums of V are known before runs begin"
        self.asked = Asked(part, rows, dtype)
        self._back.release()
        self._turn.acquire()
        self.asked = None
        answer, self._answer = self._answer, ([], [])
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def read(self, dtype: torch.dtype) -> Iterator[tuple[slice, Any]]:
        """Read V alone."""
        return self._reader.read(dtype)
