"""A folder that keeps what passes over V have found, so that no pass is ever made twice.

about.json       which data it is, and the seed
pass-….npz       what one pass found, named after what it was asked

A run is its passes and arithmetic that is the same each time. So the same call again finds its
passes here, does the arithmetic anew, and reads V from where the one before it ended: by the end of
its process, of the machine, or of a cluster.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from factormer.data.base import Matrix
from factormer.data.blocks import Blocks, Reader
from factormer.data.dask import Distributed
from factormer.data.digest import checksum, described
from factormer.data.files import check_place, parsed, replacing, write
from factormer.data.keywords import as_seed
from factormer.data.locks import held
from factormer.data.outofcore import OutOfCore
from factormer.data.parts import as_block
from factormer.data.sources import Source
from factormer.data.warn import warn

_log = logging.getLogger(__name__)
_FORMAT = 3
_PIECES, _ROWS = 16, 4  # of V, and of each, by which data is known again
_PIECE = 2**16  # bytes of a piece, unless a row has more
_SHARE = 8  # of so many chunks one is read for that, and the first, the middle and the last
_OURS = r"about\.json|pass-[0-9a-f]{24}\.npz"
_LEFT = rf"\.({_OURS}|\.run)\.[0-9a-f]{{8}}\.new"  # by a process that was killed
_LOCKS = r"\.run|\.run\.lock(\.[0-9a-f]{12})?"


@dataclass(frozen=True, eq=False)
class Journal:
    """The passes over one matrix in blocks."""

    path: Path
    seed: int

    @contextmanager
    def told(self) -> Iterator[None]:
        """Say, where a pass fails, what is kept and how to go on."""
        try:
            yield
        except OSError as error:
            kept = len(list(self.path.glob("pass-*.npz")))
            new = OSError(f"{error}; {self.path} keeps {kept} passes: the same call goes on there")
            new.errno = error.errno
            raise new from error

    def key(self, *asked: Any) -> str:
        """The name of a pass: a checksum of all that it depends on."""
        return checksum(described(asked))[:24]

    def found(self, key: str) -> tuple[list[Tensor], list[Tensor]] | None:
        """Return what a pass has found; None where it was not made, or its file is damaged."""
        path = self._file(key)
        check_place(path)
        try:
            with path.open("rb") as source, np.load(source, allow_pickle=False) as file:
                arrays = {name: np.asarray(file[name]) for name in file.files}
            seal = str(arrays.pop("seal"))
            if seal != _seal(key, arrays):
                raise ValueError("its checksum is wrong")
        except FileNotFoundError:
            return None
        except PermissionError:
            raise
        except Exception as error:  # of zip, zlib, struct and numpy
            _log.warning("%s is damaged (%s); the pass is made again", path, error)
            return None
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        joined = [tensors[f"joined{k}"] for k in range(len(tensors)) if f"joined{k}" in tensors]
        summed = [tensors[f"summed{k}"] for k in range(len(tensors)) if f"summed{k}" in tensors]
        return joined, summed

    def keep(self, key: str, joined: list[Tensor], summed: list[Tensor]) -> None:
        """Write what a pass has found, completely or not at all; a full disk ends no run."""
        arrays = {f"joined{k}": F.cpu().numpy() for k, F in enumerate(joined)}
        arrays |= {f"summed{k}": F.cpu().numpy() for k, F in enumerate(summed)}
        try:
            with replacing(self._file(key)) as file:
                np.savez(file, seal=np.array(_seal(key, arrays)), **arrays)  # pyright: ignore[reportArgumentType]
        except OSError as error:
            warn(
                f"a pass over V is not kept: {error}. The run goes on; if it ends early, the same "
                "call makes this pass again",
                RuntimeWarning,
            )

    def _file(self, key: str) -> Path:
        return self.path / f"pass-{key}.npz"


@contextmanager
def keep_passes(V: Blocks, folder: Any, seed: int | None) -> Iterator[int]:
    """Let V keep its passes in a folder, new or begun, and locked meanwhile; the seed to use.

    A folder of other data is refused. Without a seed, that of the folder counts.
    """
    if not isinstance(folder, str | Path) or not str(folder):
        raise ValueError(f"folder is {folder!r}; it must be the path of a folder, or None")
    path = Path(folder)
    with held(path, "folder"):
        for left in _named(path, _LEFT):
            left.unlink(missing_ok=True)
        file, here = path / "about.json", about(V)
        check_place(file)
        before = _read(file) if file.exists() else None
        if before is None:
            drawn = torch.Generator().seed() % 2**31
            before = {"data": here, "seed": drawn if seed is None else seed}
            write(file, json.dumps(before, indent=1) + "\n")
        if before["data"] != here:
            raise ValueError(
                f"{path} keeps passes over other data ({_told(before['data'])}; V is "
                f"{_told(here)}); choose another folder, or remove this one"
            )
        journal = Journal(path, before["seed"] if seed is None else seed)
        V.record.journal = journal
        try:
            yield journal.seed
        finally:
            V.record.journal = None


def keep_if_blocks(V: Matrix, folder: Any, seed: int | None) -> AbstractContextManager[int | None]:
    """Keep passes if V is read in blocks and there is a folder; else yield the seed alone."""
    if folder is None or not isinstance(V, Blocks):
        return nullcontext(seed)
    return keep_passes(V, folder, as_seed(seed))


def check_passes(folder: Path) -> None:
    """Refuse a folder that has other files than those of passes."""
    ours = "|".join((_OURS, _LEFT, _LOCKS))
    here = folder.iterdir() if folder.is_dir() else ()
    other = next((path for path in here if not re.fullmatch(ours, path.name)), None)
    if other is not None:
        raise ValueError(
            f"{folder} is where passes over V are kept, and holds {other.name}, which is not of "
            "them; move it away, or choose another --out"
        )


def forget_passes(folder: Path) -> None:
    """Remove the files of passes, and their folder if nothing else is in it."""
    for path in _named(folder, "|".join((_OURS, _LEFT, _LOCKS))):
        path.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def _named(folder: Path, pattern: str) -> list[Path]:
    """The plain files in a folder that have such a name."""
    here = folder.iterdir() if folder.is_dir() else ()
    return [p for p in here if re.fullmatch(pattern, p.name) and p.is_file()]


def about(V: Blocks) -> dict[str, Any]:
    """By what V is known again: shape, kind, rows from all over it, and the state of its file."""
    reader = V.reader
    return {
        "format": _FORMAT,
        "shape": list(reader.shape),
        "dtype": str(V.dtype).removeprefix("torch."),
        "rows": checksum(*_seen(reader, V.dtype)),
        "file": _state(reader.source) if isinstance(reader, OutOfCore) else None,
    }


def _state(source: Source) -> list[int] | None:
    """Bytes of a file and when it was changed, in nanoseconds; None where V is in no file."""
    with suppress(OSError):
        if source.file is not None:
            found = os.stat(source.file)
            return [found.st_size, found.st_mtime_ns]
    return None


def _seen(reader: Reader, dtype: torch.dtype) -> Iterator[str]:
    """Checksums of a few rows at the beginning, at the end and between, one after another.

    Of a store in chunks, and of a Dask array, a few chunks: the latter where they are.
    """
    if isinstance(reader, OutOfCore):
        for a, b in _spread(reader.source):
            yield checksum(described(reader.source.read(a, b)))
    elif isinstance(reader, Distributed):
        from dask.base import compute
        from dask.delayed import delayed

        chunks = reader.V.to_delayed().tolist()
        full = [row[0] for row, (a, b) in zip(chunks, pairwise(reader.ends), strict=True) if b > a]
        some = [full[k] for k in _places(len(full))]
        yield from compute(*(delayed(_digest, pure=False)(chunk, dtype) for chunk in some))
    else:
        yield checksum(described(next(iter(reader.read(dtype)))[1]))


def _spread(source: Source) -> Iterator[tuple[int, int]]:
    """Rows a … b of pieces of a source, each smaller than a block, the last rows among them."""
    m = source.shape[0]
    if source.ends is not None:  # which leave no choice
        cuts = [(a, b) for a, b in pairwise(source.ends) if b > a]
        yield from (cuts[k] for k in _places(len(cuts)))
        return
    rows = int(min(_ROWS, max(1.0, _PIECE / max(source.nbytes / m, 1.0))))
    rows = source.step if source.step > 1 else rows
    for k in _places(-(-m // rows)):
        yield k * rows, min((k + 1) * rows, m)


def _places(n: int) -> list[int]:
    """Which of n pieces are looked at."""
    count = min(n, _PIECES, max(3, n // _SHARE))
    return np.unique(np.linspace(0, n - 1, count).round().astype(int)).tolist()


def _digest(chunk: Any, dtype: torch.dtype) -> str:
    """The checksum of a chunk, on a worker."""
    return checksum(described(as_block(chunk, dtype)))


def _told(data: Any) -> str:
    m, n = data["shape"]
    told = f"{m}×{n}, {data['dtype']}, rows {data['rows'][:6]}"
    if data["file"] is None:
        return told
    size, changed = data["file"]
    return f"{told}, {size} bytes of {datetime.fromtimestamp(changed / 1e9):%Y-%m-%d %H:%M:%S}"


def _read(file: Path) -> dict[str, Any]:
    try:
        found = parsed(file.read_text("utf-8"))
        if found["data"]["format"] != _FORMAT or type(found["seed"]) is not int:
            raise ValueError("it is of another version")
        _told(found["data"])
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise ValueError(
            f"{file} is not of passes over V ({error}); choose another folder, or remove this one"
        ) from error
    return found


def _seal(key: str, arrays: dict[str, np.ndarray]) -> str:
    return checksum(key, *(part for name in sorted(arrays) for part in (name, arrays[name])))
