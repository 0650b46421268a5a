"""Chunks in the memory of Dask workers: one task for each of their threads, and rows that stay.

A task costs milliseconds, however short it is, so a thread does all of its chunks in one. What that
finds by rows stays where it is; only sums, and the rows of a sample, come back. Tasks have no side
effects: if a worker is lost, Dask makes its rows again from those of the pass before.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from traceback import walk_tb
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from factormer.data.held import Held
from factormer.data.outofcore import called
from factormer.data.parts import Part, Surveyed, lent

_UNEQUAL = 1.3  # times its share of V, from which a thread has too much of it

Done = tuple[tuple[Tensor, ...], tuple[Tensor, ...]]  # by rows of a group, and summed


class Share(NamedTuple):
    """Which chunks a group has, how many rows each, and where chunks end if they are checked."""

    numbers: tuple[int, ...]
    sizes: tuple[int, ...]
    ends: tuple[int, ...] | None
    dtype: torch.dtype


@dataclass(frozen=True, eq=False)
class Workers:
    """Chunks of whole rows as futures, in groups of those that a thread of a worker has.

    Groups stay as they are at the first pass, so that sums are formed in the same order however
    often workers are lost.
    """

    client: Any
    chunks: tuple[Any, ...]
    groups: tuple[tuple[int, ...], ...]
    ends: tuple[int, ...]
    sample: np.ndarray = field(default_factory=lambda: np.empty(0, int))  # numbers of rows

    @staticmethod
    def of(chunks: list[Any], ends: tuple[int, ...]) -> Workers | None:
        """None where chunks are not futures, are not there yet, or lie in unequal shares."""
        if not all(type(chunk).__module__.startswith("distributed.") for chunk in chunks):
            return None
        client: Any = chunks[0].client
        held, threads = client.who_has(chunks), client.nthreads()
        by_worker: dict[str, list[int]] = {}
        for k, future in enumerate(chunks):
            where = sorted(set(held.get(future.key, ())) & set(threads))
            if not where:
                return None  # still being made, or lost
            by_worker.setdefault(where[0], []).append(k)
        groups = [
            tuple(some[j :: threads[worker]])
            for worker, some in sorted(by_worker.items())
            for j in range(min(threads[worker], len(some)))
        ]
        most = max(sum(ends[k + 1] - ends[k] for k in group) for group in groups)
        if most * sum(threads.values()) > _UNEQUAL * ends[-1]:
            return None
        return Workers(client, tuple(chunks), tuple(sorted(groups)), ends)

    def sweep(
        self, part: Part, rows: tuple[Tensor, ...], dtype: torch.dtype, *, survey: bool
    ) -> tuple[list[Tensor], list[Tensor]]:
        """One pass: what it finds by rows, joined here, and what is summed."""
        with losses():
            done = self.client.gather(self._begun(part, rows, dtype, survey))
        joined = [self._in_order(some) for some in zip(*(d[0] for d in done), strict=True)]
        return joined, _added([d[1] for d in done])

    def hold(
        self,
        part: Part,
        rows: tuple[Tensor, ...],
        dtype: torch.dtype,
        *,
        survey: bool = False,
        reads: bool = True,
    ) -> tuple[list[Held], list[Tensor]]:
        """Make a pass whose results by rows stay. Unless it `reads`, the part is for rows alone."""
        m = self.ends[-1]
        with losses():
            parts = self._begun(part, rows, dtype, survey, reads)
            told = [
                self.client.submit(_told, done, few, pure=False)
                for done, few in zip(parts, self._few, strict=True)
            ]
            found = self.client.gather(told)
        few = [torch.cat(some)[self._order] for some in zip(*(f[0] for f in found), strict=True)]
        held = [Held.of(m, tuple(parts), k, some) for k, some in enumerate(few)]
        return held, _added([f[1] for f in found])

    def gather(self, F: Held) -> Tensor:
        """All rows, here."""
        with losses():
            found = [self.client.submit(_at, part, F.place, pure=False) for part in F.parts]
            return self._in_order(tuple(self.client.gather(found)))

    def sampled(self, count: int) -> Workers:
        """Return the workers with a sample of so many rows, the same for any number of workers."""
        rows = np.random.default_rng(0).choice(self.ends[-1], size=count, replace=False)
        return replace(self, sample=np.sort(rows))

    @cached_property
    def _few(self) -> list[Tensor]:
        """Which rows of each group are in the sample."""
        at = (np.flatnonzero(np.isin(rows, self.sample)) for rows in self._rows)
        return [torch.from_numpy(few) for few in at]

    @cached_property
    def _order(self) -> Tensor:
        """Return the places of the sample's rows among those of one group after another."""
        rows = [some[few.numpy()] for some, few in zip(self._rows, self._few, strict=True)]
        return torch.from_numpy(np.argsort(np.concatenate(rows)))

    @cached_property
    def _rows(self) -> list[np.ndarray]:
        """The numbers of the rows of each group, in its order."""
        cuts = list(pairwise(self.ends))
        return [np.concatenate([np.arange(*cuts[k]) for k in group]) for group in self.groups]

    def _in_order(self, groups: tuple[Tensor, ...]) -> Tensor:
        """The rows of all groups as those of one matrix."""
        whole = groups[0].new_empty(self.ends[-1], groups[0].shape[1])
        for rows, some in zip(self._rows, groups, strict=True):
            whole[torch.from_numpy(rows)] = some
        return whole

    def _begun(
        self,
        part: Part,
        rows: tuple[Tensor, ...],
        dtype: torch.dtype,
        survey: bool,
        reads: bool = True,
    ) -> list[Any]:
        """A task for each group, of all its chunks: what it finds by rows, and its sums."""
        tasks, cuts = [], list(pairwise(self.ends))
        for g, (group, mine) in enumerate(zip(self.groups, self._rows, strict=True)):
            share = Share(
                group,
                tuple(cuts[k][1] - cuts[k][0] for k in group),
                self.ends if survey else None,
                dtype,
            )
            held = [F.parts[g] for F in rows if isinstance(F, Held)]
            sent = [F.place if isinstance(F, Held) else F[torch.from_numpy(mine)] for F in rows]
            chunks = [self.chunks[k] for k in group] if reads else None
            tasks.append(self.client.submit(_done, part, share, chunks, held, sent, pure=False))
        return tasks


@torch.no_grad()
def _done(
    part: Part, share: Share, chunks: list[Any] | None, held: list[Done], sent: list[int | Tensor]
) -> Done:
    """Return what a part finds in the chunks of a group, in turn, or in rows alone.

    Of tensors by rows, `sent` has those that came along, and of the others, which are in `held`,
    their places.
    """
    here = iter(held)
    rows = [next(here)[0][F] if isinstance(F, int) else F for F in sent]
    if chunks is None:
        return part(*rows)
    found: list[Done] = []
    by_chunk = zip(*(F.split(share.sizes) for F in rows), strict=True) if rows else None
    for chunk, number in zip(chunks, share.numbers, strict=True):
        some = () if by_chunk is None else next(by_chunk)
        found.append(on_chunk(chunk, some, part, share.ends, share.dtype, number))
    joined = tuple(torch.cat(parts) for parts in zip(*(f[0] for f in found), strict=True))
    return joined, tuple(_added([f[1] for f in found]))


def on_chunk(
    chunk: Any,
    rows: tuple[Tensor, ...],
    part: Part,
    ends: tuple[int, ...] | None,
    dtype: torch.dtype,
    number: int,
) -> Done:
    """One chunk's share of a pass, which checks it if the ends of chunks are given."""
    if ends is not None:
        name = called(number, ends)
        _check_chunk(chunk, name, ends[number + 1] - ends[number])
        part = Surveyed(part, name)
    return part(lent(chunk, dtype), *rows)


def _check_chunk(chunk: Any, name: str, rows: int) -> None:
    """Refuse a chunk that is not what Dask takes it for, which only its maker knows."""
    shape = getattr(chunk, "shape", None)
    if shape is None or len(shape) != 2 or shape[0] != rows:
        found = f"{type(chunk).__name__}" + ("" if shape is None else f" of shape {tuple(shape)}")
        raise ValueError(
            f"{name} is a {found}, and Dask takes it for {rows} rows of a matrix: check the "
            "function that makes the chunks, or tell Dask their sizes by chunks="
        )


def _told(done: Done, few: Tensor) -> Done:
    """A few rows, and the sums."""
    joined, summed = done
    return tuple(F[few] for F in joined), summed


def _at(done: Done, place: int) -> Tensor:
    return done[0][place]


def _added(sums: list[tuple[Tensor, ...]]) -> list[Tensor]:
    return [torch.stack(some).sum(dim=0) for some in zip(*sums, strict=True)]


@contextmanager
def losses() -> Iterator[None]:
    """Say, where workers are lost, what to do."""
    try:
        yield
    except Exception as error:
        if not _is_loss(error):
            raise
        first, *_ = (*str(error).splitlines(), "")
        raise OSError(
            f"the Dask workers did not finish a pass over V ({type(error).__name__}: {first}); "
            "check that the cluster runs, and start again"
        ) from error


def _is_loss(error: Exception) -> bool:
    """Whether this is the end of workers or of a connection, and nothing that a task raised."""
    ours = type(error).__module__.partition(".")[0] == "distributed"
    if ours or isinstance(error, CancelledError):
        return True
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    place = frames[-1].f_globals.get("__name__", "") if frames else ""
    is_closed = isinstance(error, OSError | RuntimeError)  # as sockets and loops of events raise it
    return is_closed and place.partition(".")[0] in ("distributed", "tornado")
