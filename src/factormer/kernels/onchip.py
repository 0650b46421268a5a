"""Many factorizations on a GPU, one thread block each: the sources in `chip`, compiled at run time.

Needs CuPy, which compiles with NVRTC and keeps what it compiled on the disk. Imported by
`kernels.on_chip()` alone. The twins are `accelerate.her.HER` and `solvers.newton` with
`run.stop.Pace`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import cupy  # pyright: ignore[reportMissingImports]
import numpy as np
import torch
from torch import Tensor

from factormer.kernels.core import rules
from factormer.kernels.rules import SHARE

_SOURCES = Path(__file__).parent / "chip"
RANKS = np.array([2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32])  # others take the next
THREADS = np.array([32, 64, 128, 256])
_TILE = 64  # rows of a factor, and of V, that are at hand at a time where V is far


class Options(NamedTuple):
    """As the keywords of `factorize`; `given` says that W and H hold the start."""

    max_iter: int
    tol: float
    order: bool
    scale: int  # 0: as it is, 1: balanced, 2: columns of H sum to 1
    settles: bool
    given: bool = False
    first: int = 0  # iterations of least squares on √V before those under Kullback–Leibler


class Kind(NamedTuple):
    """A kernel: its rank and threads, whether V is far, the loss, and bytes of shared memory."""

    rank: int
    threads: int
    is_far: bool
    is_kullback: bool
    memory: int


class Kinds(NamedTuple):
    """What each problem needs, as arrays; those that do not fit into shared memory are far."""

    rank: np.ndarray
    threads: np.ndarray
    is_far: np.ndarray
    memory: np.ndarray


def kinds(m: np.ndarray, n: np.ndarray, r: np.ndarray, most: int) -> Kinds:
    """Those of problems of these sizes; ranks of at most the last of RANKS."""
    rank = RANKS[np.searchsorted(RANKS, r)]
    padded = _apart(rank)
    wide, narrow = (_threads(limit(m, n)) for limit in (np.maximum, np.minimum))
    beside = [(2 * rank + 1) * padded + _room(rank, threads) + 32 for threads in (wide, narrow)]
    near = 4 * (m * (n | 1) + 1 + (m + n) * padded + beside[0])
    tile = 4 * _TILE * (padded + narrow)
    far = near > most
    return Kinds(rank, np.where(far, narrow, wide), far, np.where(far, 4 * beside[1] + tile, near))


def _apart(rank: Any) -> Any:
    """Numbers from one row of a factor to the next: an odd multiple of four, as in the sources."""
    return (rank + 3) // 8 * 8 + 4


def _threads(rows: np.ndarray) -> np.ndarray:
    return THREADS[np.minimum(np.searchsorted(THREADS, rows), len(THREADS) - 1)]


def _room(rank: np.ndarray, threads: np.ndarray) -> np.ndarray:
    """Numbers in which the parts of a Gram matrix are added up."""
    tiles = rank // 2 * (rank // 2 + 1) // 2
    return 4 * tiles * np.maximum(threads // tiles, 1)


def far_room(m: np.ndarray, n: np.ndarray, r: np.ndarray) -> np.ndarray:
    """Numbers of a room for W and H of problems that are far."""
    rank = RANKS[np.searchsorted(RANKS, r)]
    return (m + n) * _apart(rank)


@cache
def available(device: torch.device) -> int:
    """The bytes of shared memory that a block may have on this GPU."""
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin


@cache
def _kernel(rank: int, threads: int, is_far: bool, is_kullback: bool, device: int) -> Any:
    code = source(rank, threads, is_far, is_kullback)
    with cupy.cuda.Device(device):
        options = ("-std=c++17", "-default-device")  # the core's rules name no device
        function = cupy.RawModule(code=code, options=options).get_function("factorize")
        function.max_dynamic_shared_size_bytes = available(torch.device("cuda", device))
        return function


def source(rank: int, threads: int, is_far: bool, is_kullback: bool) -> str:
    """Return the text of a kernel."""
    sizes = f"constexpr int R = {rank}, T = {threads};\n"
    flags = f"constexpr bool FAR = {int(is_far)}, KULLBACK = {int(is_kullback)};\n"
    share = f"constexpr float SHARE = {SHARE}f;\n"
    names = ("common", "squares", "kullback", "run")
    texts = ((_SOURCES / f"{name}.cu").read_text() for name in names)
    return rules() + sizes + flags + share + "\n".join(texts)


def factorize(
    kind: Kind,
    tasks: Tensor,
    W: Tensor,
    H: Tensor,
    rooms: Tensor,
    report: Tensor,
    options: Options,
) -> None:
    """Factorize each task into W and H, and report how it went.

    A task is a row of int64: the addresses of V and of its transpose, where W, H and their room
    begin, the seed, m, n, r, and the sweeps for H and for W. All is on one GPU, and numbers are
    float32. `report` (tasks, 3) takes the RMSE, iterations and status. Does not synchronize.
    """
    device = tasks.device.index or 0
    kernel, stream = _kernel(*kind[:4], device), torch.cuda.current_stream(device)
    kept = (len(tasks), options.max_iter + 1) if options.tol else (1, 1)
    errors = torch.empty(kept, device=tasks.device)
    errors.record_stream(stream)
    pointers = [tensor.data_ptr() for tensor in (tasks, W, H, rooms, report, errors)]
    numbers = (np.int32(options.max_iter), np.float32(options.tol), np.int32(options.order))
    flags = tuple(map(np.int32, (options.scale, options.settles, options.given, options.first)))
    with cupy.cuda.Device(device), cupy.cuda.Stream.from_external(stream):
        grid, block = (len(tasks),), (kind.threads,)
        kernel(grid, block, (*pointers, *numbers, *flags), shared_mem=kind.memory)
