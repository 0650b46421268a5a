"""A folder that keeps many jobs as they end; a later call, or another process, goes on there.

sweep.json        what was asked for, and where the jobs are cut into pieces
piece-00012.npz   results of the jobs of a piece; of some of them, where a call was cut short

A process locks a piece before it works on it. That saves work, and nothing depends on it: a piece
is replaced as a whole, by one with the same results.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from factormer.data import Blocks
from factormer.data.digest import checksum
from factormer.data.files import check_place, parsed, unwritten, write
from factormer.data.locks import Lock, locked
from factormer.many.asked import asked, difference, seeds_of
from factormer.many.jobs import Jobs
from factormer.many.results import Batch, Renumbered
from factormer.many.run import batches
from factormer.many.stored import Stored, load, save
from factormer.run.result import Result, Status
from factormer.sentence import Sentence

_WORK = 2e8, 2e9  # multiplications in a piece, about: so many that it pays, and at most
_SHARES = 32  # a piece has 1/32 of the jobs, unless that is too much or too little work for it
_BYTES = 2**25  # in a piece, about, at most
_SECONDS = 5.0  # of finished work that a kill may cost, besides the jobs that are under way
_PAUSE = 0.05, 0.3  # seconds between two looks at what other processes do: at least, at most
_CUT_SHORT = (Status.TIME_LIMIT, Status.INTERRUPTED)


@dataclass(frozen=True, eq=False)
class Sweep:
    """Jobs and the folder they are kept in; piece k holds the jobs cuts[k] … cuts[k + 1]."""

    path: Path
    jobs: Jobs
    cuts: list[int]
    mark: str  # of what was asked, which each piece carries

    @staticmethod
    def opened(path: Path, jobs: Jobs, *, is_seeded: bool) -> Sweep:
        """The sweep of these jobs in a folder, new or begun; one of other jobs is refused.

        Where no seed was given, that of the sweep that was begun counts.
        """
        if isinstance(jobs.sources, list) and any(isinstance(V, Blocks) for V in jobs.sources):
            raise ValueError(
                Sentence(
                    "folder is {path!r}, and V is read in blocks, of which no checksum is made: "
                    "leave folder out, or raise {memory_limit} so that V fits into memory",
                    path=str(path),
                )
            )
        file = path / "sweep.json"
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritten(path, error) from error
        with locked(path / ".sweep.lock"):
            for left in path.glob(".sweep.json.*.new"):  # by a process that was killed
                left.unlink(missing_ok=True)
            check_place(file)
            before = _read(file) if file.exists() else None
            if before is not None and not is_seeded:
                jobs = replace(jobs, seed=seeds_of(before["asked"]["random_state"], len(jobs)))
            now = json.loads(json.dumps(asked(jobs)))  # as it will be read
            if before is None:
                before = {"asked": now, "cuts": _cuts(jobs)}
                write(file, json.dumps(before, indent=1) + "\n")
        if (what := difference(before["asked"], now)) is not None:
            raise ValueError(
                f"{path} holds a sweep {what}; choose another folder, or remove this one"
            )
        if before["cuts"][-1] != len(jobs):
            raise _foreign(file, f"it is of {before['cuts'][-1]} jobs, not {len(jobs)}")
        return Sweep(path, jobs, before["cuts"], checksum(now))

    def batches(self, *, until: float | None) -> Generator[Batch, None, None]:
        """Yield the batches that are there; then the jobs left, as any process ends them."""
        self._tidy()
        left: list[int] = []
        for piece in range(len(self.cuts) - 1):
            kept = self._kept(piece)
            if kept is not None and self._is_whole(piece, kept):
                yield kept
            else:
                left.append(piece)
        while left:
            others: list[int] = []
            for piece in left:
                if until is not None and time.perf_counter() >= until:
                    kept = self._kept(piece)  # some of its jobs, perhaps
                    yield from () if kept is None else (kept,)
                    continue
                lock = self._lock(piece)
                if not lock.take():
                    others.append(piece)
                    continue
                try:
                    yield from self._done(piece, until)
                finally:
                    lock.release()
            for piece in list(others):
                kept = self._kept(piece)
                if kept is not None and self._is_whole(piece, kept):
                    others.remove(piece)
                    yield kept
            if len(others) == len(left):
                time.sleep(random.uniform(*_PAUSE))
            left = others

    def _done(self, piece: int, until: float | None) -> Generator[Batch, None, None]:
        """The jobs of a piece: what is there, and the rest, which is kept as it ends."""
        for old in self.path.glob(f".{self._file(piece).name}.*.new"):
            old.unlink(missing_ok=True)  # of a process that was killed
        kept = self._kept(piece)  # by now, perhaps
        found: dict[int, Result] = {}
        if kept is not None:
            found = {int(index): kept.result(place) for place, index in enumerate(kept.indices)}
            yield kept
        left = [index for index in self._span(piece) if index not in found]
        if not left:
            return
        there, saved = len(found), time.monotonic()
        try:
            with closing(batches(_some(self.jobs, left), until=until)) as ended:
                for batch in ended:
                    ours = Renumbered(batch, np.array(left)[batch.indices])
                    for place, index in enumerate(ours.indices):
                        result = ours.result(place)
                        if result.status not in _CUT_SHORT:
                            found[int(index)] = result
                    if time.monotonic() - saved >= _SECONDS and len(found) > there:
                        self._keep(piece, found)
                        there, saved = len(found), time.monotonic()
                    yield ours
        finally:  # also after Ctrl-C, and where the next job is refused
            if len(found) > there:
                self._keep(piece, found)

    def _keep(self, piece: int, found: dict[int, Result]) -> None:
        """Write a piece, over the last one; Ctrl-C meanwhile does not prevent it."""
        try:
            save(self._file(piece), found, self.mark)
        except KeyboardInterrupt:
            save(self._file(piece), found, self.mark)
            raise

    def _tidy(self) -> None:
        """Remove the locks of processes that were killed."""
        for path in self.path.glob(".piece-*.lock*"):
            number = path.name.removeprefix(".piece-").partition(".")[0]
            lock = self._lock(int(number) if number.isdecimal() else 0)
            if lock.take():
                lock.release()

    def _lock(self, piece: int) -> Lock:
        return Lock(self.path / f".piece-{piece:05d}.lock")

    def _file(self, piece: int) -> Path:
        return self.path / f"piece-{piece:05d}.npz"

    def _span(self, piece: int) -> range:
        return range(self.cuts[piece], self.cuts[piece + 1])

    def _is_whole(self, piece: int, kept: Stored) -> bool:
        return len(kept.indices) == len(self._span(piece))

    def _kept(self, piece: int) -> Stored | None:
        return load(self._file(piece), self.jobs, self._span(piece), self.mark)


def _some(jobs: Jobs, indices: Sequence[int]) -> Jobs:
    """Some of the jobs; they share the plans that were chosen."""
    arrays = {name: getattr(jobs, name)[indices] for name in ("problem", "rank", "run", "seed")}
    some = replace(jobs, **arrays)
    some.__dict__["_plans"] = jobs._plans
    return some


def _cuts(jobs: Jobs) -> list[int]:
    """Return where jobs are cut into pieces: of bounded work and size, and several to share out."""
    m, n, r = (size.astype(float) for size in jobs.sizes)
    max_iter = jobs.plan(0).request.limits.max_iter
    work = m * n * r * min(max_iter, 100)
    size = 8 * ((m + n) * r + 2 * min(max_iter, 10_000))
    cuts, done, stored = [0], 0.0, 0.0
    for a, b in pairwise(range(len(jobs) + 1)):
        count, more, longer = a - cuts[-1], float(work[a:b].sum()), float(size[a:b].sum())
        enough = done >= _WORK[0] and count >= len(jobs) / _SHARES
        if count and (enough or done + more > _WORK[1] or stored + longer > _BYTES):
            cuts.append(a)
            done = stored = 0.0
        done, stored = done + more, stored + longer
    return [*cuts, len(jobs)]


def _read(file: Path) -> dict[str, Any]:
    """A sweep.json as it was written."""
    try:
        found = parsed(file.read_text(encoding="utf-8"))
        cuts = found["cuts"]
        rises = all(type(cut) is int for cut in cuts) and cuts == sorted({*cuts}) and cuts[0] == 0
        seeds = found["asked"]["random_state"]
        listed = isinstance(seeds, list) and all(type(seed) is int for seed in seeds)
        if not rises or not (listed or type(seeds) is int):
            raise ValueError("its parts do not fit together")
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise _foreign(file, error) from error
    return found


def _foreign(file: Path, what: object) -> ValueError:
    return ValueError(
        f"{file} is not the description of a sweep ({what}); choose another folder, or remove this "
        "one"
    )
