"""Many small factorizations on a GPU, one thread block each: `onchip.cu`, compiled at run time.

Needs CuPy, which compiles with NVRTC and keeps what it compiled on the disk. Imported by
`kernels.on_chip()` alone. The twin is `accelerate.her.HER` with `run.stop.Stationary`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import cupy  # pyright: ignore[reportMissingImports]
import numpy as np
import torch
from torch import Tensor

_SOURCE = Path(__file__).with_suffix(".cu")
RANKS = np.array([2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32])  # others take the next
THREADS = np.array([32, 64, 128, 256])


class Options(NamedTuple):
    """As the keywords of `factorize`; `given` says that W and H hold the start."""

    max_iter: int
    tol: float
    order: bool
    scale: int  # 0: as it is, 1: balanced, 2: columns of H sum to 1
    settles: bool
    given: bool = False


class Kinds(NamedTuple):
    """What each problem needs: the kernel for its rank and threads, and bytes of shared memory."""

    rank: np.ndarray
    threads: np.ndarray
    memory: np.ndarray


def kinds(m: np.ndarray, n: np.ndarray, r: np.ndarray) -> Kinds:
    """Those of problems of these sizes; ranks of at most the last of RANKS."""
    rank = RANKS[np.searchsorted(RANKS, r)]
    threads = THREADS[np.minimum(np.searchsorted(THREADS, np.maximum(m, n)), len(THREADS) - 1)]
    padded, tiles = rank + rank % 4, rank // 2 * (rank // 2 + 1) // 2
    room = 4 * tiles * np.maximum(threads // tiles, 1)
    numbers = m * (n | 1) + 1 + (m + n + 2 * rank + 1) * padded + room + 32
    return Kinds(rank, threads, 4 * numbers)


@cache
def available(device: torch.device) -> int:
    """The bytes of shared memory that a block may have on this GPU."""
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin


@cache
def _kernel(rank: int, threads: int, device: int) -> Any:
    with cupy.cuda.Device(device):
        sizes = f"constexpr int R = {rank}, T = {threads};\n"
        module = cupy.RawModule(code=sizes + _SOURCE.read_text(), options=("-std=c++17",))
        function = module.get_function("factorize")
        function.max_dynamic_shared_size_bytes = available(torch.device("cuda", device))
        return function


def factorize(
    kind: tuple[int, int, int],
    tasks: Tensor,
    W: Tensor,
    H: Tensor,
    report: Tensor,
    options: Options,
) -> None:
    """Factorize each task into W and H, and report how it went.

    A task is a row of int64: the address of V, where W and H begin, the seed, m, n, r, and the
    sweeps for H and for W. `kind` is one of `Kinds`, all is on one GPU, and V, W and H are float32.
    `report` (tasks, 4) takes the RMSE, iterations, status, and the projected gradient relative to
    that of the start. Does not synchronize.
    """
    rank, threads, memory = kind
    device = tasks.device.index or 0
    kernel, stream = _kernel(rank, threads, device), torch.cuda.current_stream(device)
    pointers = [tensor.data_ptr() for tensor in (tasks, W, H, report)]
    numbers = (np.int32(options.max_iter), np.float32(options.tol), np.int32(options.order))
    flags = (np.int32(options.scale), np.int32(options.settles), np.int32(options.given))
    with cupy.cuda.Device(device), cupy.cuda.Stream.from_external(stream):
        kernel((len(tasks),), (threads,), (*pointers, *numbers, *flags), shared_mem=memory)
