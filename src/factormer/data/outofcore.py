"""Blocks on this machine: each thread has one of its own, and one more reads the next.

They are worked on in memory, or travel to a device whose memory V is too large for.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from factormer import kernels
from factormer.data.blocks import Blocks, Reader
from factormer.data.memory import as_bytes, bytes_on
from factormer.data.parts import Part, Parts, Surveyed, as_block
from factormer.data.sources import Source
from factormer.data.staging import Entries, Here, There
from factormer.kernels.lanes import Line
from factormer.kernels.threads import width
from factormer.sentence import Sentence

_SHARE = 8  # the part of the memory limit that a block takes; there are three of them, or more
_LANES = 3  # of them at least: two are worked on while a third one is read
_MORE = 16  # the part of the limit that further blocks may take, for further threads
_BLOCK = 2**24  # bytes of a block from which larger ones are no faster
_SENT = 2**27  # the same of a block that travels
_HERE = torch.device("cpu")

Room = Here | There | None  # None for sparse blocks that bring their own


@dataclass(eq=False)
class Traffic:
    """How much was read: bytes as they are stored, and rows."""

    n_bytes: float = 0.0
    n_rows: int = 0


@dataclass(frozen=True, eq=False)
class OutOfCore:
    """A source that is read from block to block, `ends` being their first rows and the last end.

    If `sent_to` is a device, dense blocks travel there and are worked on there, as are factors.
    """

    source: Source
    ends: tuple[int, ...]
    room: float
    lanes: int = _LANES  # threads with a block each, at most
    traffic: Traffic = field(default_factory=Traffic)
    sent_to: torch.device | None = None

    @property
    def device(self) -> torch.device:
        """Return the device that works on blocks."""
        return self.sent_to or _HERE

    @property
    def shape(self) -> tuple[int, int]:
        return self.source.shape

    @property
    def itemsize(self) -> int:
        return self.source.itemsize

    @property
    def entries(self) -> float:
        return self.source.entries

    @property
    def kind(self) -> str:
        return self.source.kind

    @property
    def is_sparse(self) -> bool:
        return self.source.is_sparse

    @property
    def is_at_hand(self) -> bool:
        return False

    def sweep(
        self, part: Part, rows: tuple[Tensor, ...], dtype: torch.dtype, *, survey: bool
    ) -> tuple[list[Tensor], list[Tensor]]:
        """One pass over the blocks: some are worked on side by side while another one is read."""
        whole: list[Tensor] = []
        sums: list[Tensor] = []
        rooms = self._rooms(dtype, lanes := self._lanes(dtype))

        def load(number: int, lane: int) -> tuple[Room, Any]:
            room = rooms[lane]
            block = self._load(self.ends[number], self.ends[number + 1], dtype, room)
            return room, block if room is None else room.sent(block)

        def work(number: int, loaded: tuple[Room, Any]) -> Parts:
            at, (room, block) = slice(*self.ends[number : number + 2]), loaded
            name = called(number, self.ends)
            task = Surveyed(part, name, self.source.columns) if survey else part
            with nullcontext() if room is None else room.working():
                return task(block, *(F[at] for F in rows))

        def join(number: int, found: Parts) -> None:
            joined, summed = found
            at = slice(*self.ends[number : number + 2])
            if not number:
                whole.extend(F.new_empty(self.shape[0], F.shape[1]) for F in joined)
                sums.extend(torch.zeros_like(F) for F in summed)
            for F, some in zip(whole, joined, strict=True):
                F[at] = some
            for F, some in zip(sums, summed, strict=True):
                F += some

        Line(load, work, join).run(len(self.ends) - 1, lanes)
        return whole, sums

    def _lanes(self, dtype: torch.dtype) -> int:
        """How many blocks there are at a time; one less where what is read is copied into them."""
        source = self.source
        if self.sent_to is not None:
            return _LANES
        direct = source.dtype == kernels.real(dtype) and (source.is_sparse or source.take)
        return min(width() + 1, self.lanes if direct else self.lanes - 1)

    def read(self, dtype: torch.dtype) -> Iterator[tuple[slice, Any]]:
        """The rows of each block, and the block, while a thread reads the next one.

        Blocks may lie in memory that is used again: each only until the next but one is read.
        """
        cuts = list(pairwise(self.ends))
        rooms = self._rooms(dtype, 2)
        with ThreadPoolExecutor(1, "factormer-read") as reader:
            coming = reader.submit(self._load, *cuts[0], dtype, rooms[0])
            for number, (a, b) in enumerate(cuts):
                block = coming.result()
                if number + 1 < len(cuts):
                    room = rooms[(number + 1) % 2]
                    coming = reader.submit(self._load, *cuts[number + 1], dtype, room)
                yield slice(a, b), block

    def _rooms(self, dtype: torch.dtype, count: int) -> list[Room]:
        """Memory for some blocks."""
        source = self.source
        if source.starts is not None and source.index is not None:
            most = int(np.diff(source.starts[list(self.ends)]).max())
            return [Entries(most, source.dtype, source.index) for _ in range(count)]
        if source.is_sparse:
            return [None] * count
        rows, n = max(b - a for a, b in pairwise(self.ends)), self.shape[1]
        if self.sent_to is not None:
            return [There(rows, n, dtype, self.sent_to) for _ in range(count)]
        return [Here(rows, n, kernels.real(dtype)) for _ in range(count)]

    def _load(self, a: int, b: int, dtype: torch.dtype, into: Room) -> Any:
        take = self.source.take
        room = None if into is None or isinstance(into, Entries) else into.emptied()
        try:
            if take is not None and isinstance(into, Entries):
                rows: Any = take(a, b, into.pair)
                block = as_block(rows, dtype)
            elif take is not None and room is not None and room.dtype == self.source.dtype:
                rows = take(a, b, room[: b - a])
                block = torch.from_numpy(rows)
            else:
                rows = self.source.read(a, b)
                block = as_block(rows, dtype, room)  # which reads a memory-mapped file
        except Exception as error:  # stores raise anything
            raise OSError(
                f"rows {a} to {b - 1} of V, a {self.kind}, could not be read "
                f"({error or type(error).__name__}); check that its file is there, open and whole"
            ) from error
        sparse = scipy.sparse.issparse(rows)
        self.traffic.n_bytes += rows.data.nbytes + rows.indices.nbytes if sparse else rows.nbytes
        self.traffic.n_rows += b - a
        return block


def blocks_of(
    source: Source, memory_limit: Any = None, *, sent_to: torch.device | None = None
) -> Blocks:
    """Blocks of a source that keep within a limit, in bytes or as text ("4GB").

    With a device, dense ones travel there, and the limit is for its memory.
    """
    limit = bytes_on(sent_to, memory_limit) if sent_to is not None else as_bytes(memory_limit)
    given, size = limit, _BLOCK if sent_to is None else _SENT
    if sent_to is None:
        limit -= source.held
        _check_held(source, given)
    ends, largest = _cut(source, float(min(limit / _SHARE, size)))
    if largest > limit / _LANES:
        rows = max(b - a for a, b in pairwise(ends))
        raise ValueError(
            Sentence(
                "V, a {kind}, stores {rows} rows together, which take {largest:.3g} bytes, and "
                "three times that must fit into {memory_limit}, of which {limit:.3g} bytes are "
                "left: raise it, or store V in smaller chunks or row groups",
                kind=source.kind,
                rows=rows,
                largest=largest,
                limit=limit,
            )
        )
    more = 0 if sent_to is not None else min(_more_threads(), int(limit / _MORE / largest))
    room = limit - (_LANES + more) * largest
    return Blocks(OutOfCore(source, ends, room, _LANES + more, sent_to=sent_to))


def limit_for(reader: Reader, need: float) -> float:
    """A memory limit that leaves so many bytes beside the blocks."""
    if not isinstance(reader, OutOfCore):
        return need
    source = reader.source
    stored = source.step if source.ends is None else max(b - a for a, b in pairwise(source.ends))
    together = stored * max(source.nbytes / source.shape[0], 1.0)
    size = _BLOCK if reader.sent_to is None else _SENT
    least = max(min(need / (1 - _LANES / _SHARE), need + _LANES * size), need + _LANES * together)
    if reader.sent_to is not None:
        return least
    return source.held + (least / (1 - 1 / _MORE) if _more_threads() else least)


def _check_held(source: Source, limit: float) -> None:
    """Refuse a limit that a store exceeds by itself."""
    if source.held >= limit:
        groups = "" if source.ends is None else f" in {len(source.ends) - 1} row groups"
        m, n = source.shape
        raise ValueError(
            Sentence(
                "V, a {kind} of {m}×{n}{groups}, takes about {held:.3g} bytes beside its blocks, "
                "for where its rows are and for chunks that are decoded, and {memory_limit} is "
                "{limit:.3g}: raise {memory_limit}, or store V in fewer row groups, or in smaller "
                "chunks",
                kind=source.kind,
                m=m,
                n=n,
                groups=groups,
                held=source.held,
                limit=limit,
            )
        )


def _more_threads() -> int:
    """Return the number of this machine's threads that three blocks leave idle."""
    return max(width() + 1 - _LANES, 0)


def _cut(source: Source, size: float) -> tuple[tuple[int, ...], float]:
    """Return the ends of blocks of about so many bytes, and the bytes of the largest."""
    (m, _), row = source.shape, max(source.nbytes / source.shape[0], 1.0)
    if (before := source.before()) is not None:
        ends = [0]
        while ends[-1] < m:  # at least a row
            last = np.searchsorted(before, before[ends[-1]] + size, side="right") - 1
            ends.append(max(int(last), ends[-1] + 1))
        return tuple(ends), float(np.diff(before[ends]).max())
    most = max(int(size / row), 1)
    step = max(most // source.step, 1) * source.step
    places = (*range(0, m, step), m) if source.ends is None else _merged(source.ends, most)
    return places, max(b - a for a, b in pairwise(places)) * row


def called(number: int, ends: tuple[int, ...]) -> str:
    """Return the name of a block in errors."""
    a, b = ends[number : number + 2]
    return f"block {number + 1} of {len(ends) - 1} of V (rows {a} to {b - 1})"


def _merged(ends: tuple[int, ...], most: int) -> tuple[int, ...]:
    """Neighbouring pieces put together while they have at most so many rows."""
    kept = [ends[0]]
    for here, after in pairwise((*ends[1:], ends[-1] + most + 1)):
        if after - kept[-1] > most:
            kept.append(here)
    return tuple(kept)
