"""Blocks that are chunks of a Dask array: what is done with one happens where it is.

H goes to the workers, and the sums come back through a tree. So do the rows of W, VH and sketches,
unless the chunks are in the memory of workers (`data/workers.py`): there rows stay.
A pass is a graph of tasks without side effects: if a worker is lost, Dask makes its part again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from factormer.data.blocks import Blocks
from factormer.data.memory import as_bytes
from factormer.data.parts import Part, as_block
from factormer.data.workers import Done, Workers, losses, on_chunk

_FAN_IN = 8  # sums that a task of the tree adds


@dataclass(frozen=True, eq=False)
class Distributed:
    """A Dask array in chunks of rows, `ends` being their first rows and the last end."""

    V: Any
    ends: tuple[int, ...]
    room: float

    kind = "Dask array"

    @property
    def shape(self) -> tuple[int, int]:
        m, n = self.V.shape
        return int(m), int(n)

    @property
    def itemsize(self) -> int:
        return 4 if self.V.dtype == np.float32 else 8

    @property
    def entries(self) -> float:
        """All of them: how many a sparse chunk stores is known only where it is."""
        m, n = self.shape
        return float(m) * n

    @property
    def is_sparse(self) -> bool:
        """Whether chunks are scipy's, as far as Dask knows."""
        return not isinstance(self.V._meta, np.ndarray)

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def is_at_hand(self) -> bool:
        """Whether chunks are arrays or futures, and not tasks that make them each time."""
        return not any(_is_task(chunk) for chunk in self.V.__dask_graph__().values())

    def sweep(
        self, part: Part, rows: tuple[Tensor, ...], dtype: torch.dtype, *, survey: bool
    ) -> tuple[list[Tensor], list[Tensor]]:
        """One pass: a task for each chunk or group of chunks, and sums of what they return."""
        if self.workers is not None:
            return self.workers.sweep(part, rows, dtype, survey=survey)
        return self._alone(part, rows, dtype, survey)

    def _alone(
        self, part: Part, rows: tuple[Tensor, ...], dtype: torch.dtype, survey: bool
    ) -> tuple[list[Tensor], list[Tensor]]:
        """A task for each chunk, which also makes the chunk: it then goes to no other worker."""
        from dask.base import compute
        from dask.delayed import delayed

        with losses():
            done = self.V.map_blocks(
                _done,
                self._by_rows(rows),
                delayed(part, pure=False),  # which travels once to each worker
                self.ends if survey else None,
                torch_dtype=dtype,
                dtype=object,
                meta=np.empty((0, 0), object),
            )
            tasks = [row[0] for row in done.to_delayed().tolist()]
            joined = [delayed(_first, pure=False)(task) for task in tasks]
            sums = [delayed(_second, pure=False)(task) for task in tasks]
            while len(sums) > 1:
                some = [sums[k : k + _FAN_IN] for k in range(0, len(sums), _FAN_IN)]
                sums = [delayed(_added, pure=False)(each) for each in some]
            joined, (summed,) = compute(joined, sums)
        return [torch.cat(list(some)) for some in zip(*joined, strict=True)], list(summed)

    @cached_property
    def workers(self) -> Workers | None:
        """Return the workers whose memory has the chunks; None where Dask decides."""
        graph = self.V.__dask_graph__()
        return Workers.of([graph.get(key) for (key,) in self.V.__dask_keys__()], self.ends)

    def _by_rows(self, rows: tuple[Tensor, ...]) -> Any:
        """A Dask array whose chunks hold the rows of each tensor that go with a chunk of V."""
        from dask.array.core import Array
        from dask.base import tokenize

        name = f"rows-{tokenize(object())}"
        parts = {
            (name, k, 0): _Rows(tuple(F[a:b].clone() for F in rows))  # not all of F
            for k, (a, b) in enumerate(pairwise(self.ends))
        }
        chunks = (self.V.chunks[0], (self.V.shape[1],))
        return Array(parts, name, chunks, meta=np.empty((0, 0), object))

    def read(self, dtype: torch.dtype) -> Iterator[tuple[slice, Any]]:
        """The chunks, one after another, on this machine."""
        for (chunk,), (a, b) in zip(self.V.to_delayed().tolist(), pairwise(self.ends), strict=True):
            yield slice(a, b), as_block(chunk.compute(), dtype)


def is_dask(V: Any) -> bool:
    """Whether V is a Dask array; without importing Dask, which is optional."""
    return type(V).__module__.partition(".")[0] == "dask" and hasattr(V, "to_delayed")


def distributed_of(V: Any, memory_limit: Any = None) -> Blocks:
    """Blocks that are the chunks of a Dask array, which must be whole rows of known numbers."""
    if not hasattr(V, "chunks"):
        raise ValueError(
            f"V is a Dask {type(V).__name__}; it must be an array: V.to_dask_array(lengths=True)"
        )
    if V.ndim != 2 or 0 in V.shape:
        raise ValueError(f"V has shape {V.shape}; it must be a matrix with rows and columns")
    if np.isnan(np.array([float(size) for axis in V.chunks for size in axis])).any():
        raise ValueError(
            "V is a Dask array whose chunks have unknown sizes; call V.compute_chunk_sizes() first"
        )
    if V.dtype.kind not in "biuf":
        raise ValueError(f"V holds {V.dtype} values; it must hold real numbers")
    by_rows, by_columns = V.chunks
    if len(by_columns) > 1:
        raise ValueError(
            f"V is a Dask array with {len(by_columns)} chunks across its columns; chunks must be "
            "whole rows: use V.rechunk({0: 'auto', 1: -1})"
        )
    _check_kinds(V)
    if 0 in by_rows:  # as filters leave them
        V = V.blocks[[k for k, size in enumerate(by_rows) if size]]
    ends = (0, *accumulate(int(size) for size in V.chunks[0]))
    return Blocks(Distributed(V, ends, as_bytes(memory_limit)))


def _check_kinds(V: Any) -> None:
    """Refuse what Dask already knows not to be rows of numbers."""
    meta = V._meta
    if not (isinstance(meta, np.ndarray) or scipy.sparse.issparse(meta)):
        raise ValueError(
            f"V is a Dask array with chunks of {type(meta).__name__}; they must be numpy arrays or "
            "scipy.sparse matrices: use V.map_blocks(...)"
        )


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of tensors, as one value."""

    tensors: tuple[Tensor, ...]


def _is_task(node: Any) -> bool:
    """Whether a node of a graph of Dask has to be computed; Dask's public names do not say."""
    kind = type(node)
    return kind is tuple or (kind.__module__.startswith("dask.") and kind.__name__ != "DataNode")


@torch.no_grad()
def _done(
    chunk: Any,
    rows: _Rows,
    part: Part,
    ends: tuple[int, ...] | None,
    torch_dtype: torch.dtype,
    block_id: tuple[int, int] | None = None,
) -> Done:
    """One chunk's share of a pass, on a worker."""
    return on_chunk(chunk, rows.tensors, part, ends, torch_dtype, (block_id or (0, 0))[0])


def _first(result: Done) -> tuple[Tensor, ...]:
    return result[0]


def _second(result: Done) -> tuple[Tensor, ...]:
    return result[1]


def _added(results: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    return tuple(torch.stack(some).sum(dim=0) for some in zip(*results, strict=True))
