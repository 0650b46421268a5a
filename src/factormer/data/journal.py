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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from factormer.data.blocks import Blocks, Reader
from factormer.data.digest import checksum, described
from factormer.data.files import check_place, parsed, replacing, unwritten, write
from factormer.data.outofcore import OutOfCore
from factormer.data.warn import warn

_log = logging.getLogger(__name__)
_FORMAT = 1
_ROWS = 64  # by which data is known again


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
        """What a pass has found; None where it was not made, or its file is damaged."""
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
        arrays = {f"joined{k}": F.numpy() for k, F in enumerate(joined)}
        arrays |= {f"summed{k}": F.numpy() for k, F in enumerate(summed)}
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


def keep_passes(V: Blocks, folder: Any, seed: int | None) -> int:
    """Let V keep its passes in a folder, new or begun; the seed to use.

    A folder of other data is refused. Without a seed, that of the folder counts.
    """
    if not isinstance(folder, str | Path) or not str(folder):
        raise ValueError(f"folder is {folder!r}; it must be the path of a folder, or None")
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritten(path, error) from error
    for left in path.glob(".*.new"):  # by a process that was killed
        left.unlink(missing_ok=True)
    file, here = path / "about.json", _about(V.reader, V.dtype)
    check_place(file)
    before = _read(file) if file.exists() else None
    if before is None:
        drawn = torch.Generator().seed() % 2**31
        before = {"data": here, "seed": drawn if seed is None else seed}
        write(file, json.dumps(before, indent=1) + "\n")
    if before["data"] != here:
        raise ValueError(
            f"{path} keeps passes over other data ({_told(before['data'])}; V is {_told(here)}); "
            "choose another folder, or remove this one"
        )
    journal = Journal(path, before["seed"] if seed is None else seed)
    V.record.journal = journal
    return journal.seed


def _about(reader: Reader, dtype: torch.dtype) -> dict[str, Any]:
    """Shape and kind of V, and a checksum of its first rows."""
    return {
        "format": _FORMAT,
        "shape": list(reader.shape),
        "dtype": str(dtype).removeprefix("torch."),
        "first": checksum(described(_first_rows(reader, dtype))),
    }


def _first_rows(reader: Reader, dtype: torch.dtype) -> Any:
    """A few rows of a file or store, or the first chunk of a Dask array."""
    if isinstance(reader, OutOfCore):
        source, m = reader.source, reader.shape[0]
        return source.read(0, min(_ROWS, m) if source.ends is None else source.ends[1])
    return next(iter(reader.read(dtype)))[1]


def _told(data: Any) -> str:
    m, n = data["shape"]
    return f"{m}×{n}, {data['dtype']}, first rows {data['first'][:6]}"


def _read(file: Path) -> dict[str, Any]:
    try:
        about = parsed(file.read_text("utf-8"))
        if about["data"]["format"] != _FORMAT or type(about["seed"]) is not int:
            raise ValueError("it is of another version")
        _told(about["data"])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ValueError(
            f"{file} is not of passes over V ({error}); choose another folder, or remove this one"
        ) from error
    return about


def _seal(key: str, arrays: dict[str, np.ndarray]) -> str:
    return checksum(key, *(part for name in sorted(arrays) for part in (name, arrays[name])))
