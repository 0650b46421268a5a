"""Many training updates of an N-Factormer in one launch: `learning.cu`, compiled at run time.

Needs CuPy, which compiles with NVRTC and keeps what it compiled on the disk; it is imported on the
first launch, so that sizes and weights can be laid out, and the text compiled otherwise, anywhere.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

_SOURCE = Path(__file__).with_suffix(".cu")
_FOR_A_GPU = """
#define SHARED(type, name) extern __shared__ float4 memory[]; type &name = *(type *)memory
#define PAUSE
#define PEEK(p) (*(volatile unsigned *)(p))
"""
_N_INNER, _PIECES = 5, 20  # as in the text


class Sizes(NamedTuple):
    """What the text is compiled for; `rows` bounds those of W and of H."""

    width: int
    heads: int
    ffn_width: int
    n_pairs: int
    rank: int
    n_points: int
    rows: int
    threads: int = 512

    @property
    def padded_rows(self) -> int:
        return -(-self.rows // 4) * 4

    @property
    def edge_width(self) -> int:
        """2d + 1, up to a multiple of four."""
        return (2 * self.width + 4) // 4 * 4

    def source(self) -> str:
        """The text with its constants before it."""
        values = {
            "D": self.width,
            "HEADS": self.heads,
            "F": self.ffn_width,
            "L": self.n_pairs,
            "R": self.rank,
            "POINTS": self.n_points,
            "M": self.padded_rows,
            "T": self.threads,
        }
        constants = ", ".join(f"{name} = {value}" for name, value in values.items())
        return f"constexpr int {constants};\n{_SOURCE.read_text()}"

    def numbers_per_row(self) -> int:
        """Numbers of a `Row`."""
        d, h, e, m = self.width, self.heads, self.edge_width, self.padded_rows
        return 10 * d + 3 * h * d + 2 * h * e + 2 * self.ffn_width + 4 + 2 * h * m

    def numbers_per_end(self) -> int:
        """Numbers of `Ends`."""
        return (self.n_points + 2) * self.rank + self.width

    def numbers_per_half(self) -> int:
        """Numbers of a `Half`."""
        return self.rank + self.rank**2

    def points_room(self, n_steps: int, total: int) -> int:
        """Numbers of points and their adjoints, for m + n = total."""
        r = self.rank
        return (2 * (n_steps + 1) + 2) * total * r + total * self.width + 2 * r * r

    def shared_bytes(self) -> int:
        """Bytes of `Shared`."""
        d, h, e, m, r = self.width, self.heads, self.edge_width, self.padded_rows, self.rank
        mixed = h * d + -(-h // 4) * 4
        room = max(4 * self.threads, h * e, _PIECES * mixed, 5 * h * m)
        numbers = m * d + room + 6 * d + h * (2 * e + d + 4 + 2 * m) + m + self.ffn_width
        numbers += m * r + 2 * r * r + r * (3 + _N_INNER + 1 + 2 * _N_INNER + 2 + self.n_points)
        return -(-numbers // 4) * 16


class Updates(NamedTuple):
    """What a launch reads: which problem and how many accelerated steps; the rates of AdamW."""

    tasks: Tensor  # int32 (k, 2)
    rates: Tensor  # float32 (k, 3): lr, lr / (1 − β₁ᵗ), √(1 − β₂ᵗ)


class Problems(NamedTuple):
    """All matrices one after the other, each followed by its transpose, and their starts."""

    table: Tensor  # int64 (p, 4): m, n, where V begins, where H and W of the start begin
    V: Tensor
    x0: Tensor
    scales: Tensor  # the network sees V / scale


class Weights(NamedTuple):
    """The weights in both orders, and the two moments of AdamW."""

    theta: Tensor
    turned: Tensor
    first: Tensor
    second: Tensor


class Room(NamedTuple):
    """What a run writes down on its way."""

    rows: Tensor
    ends: Tensor
    points: Tensor
    halves: Tensor
    layer_rows: int

    @classmethod
    def make(cls, sizes: Sizes, n_steps: int, total: int, device: Any) -> Room:
        """Room for matrices with m + n up to `total`."""
        calls = 1 if sizes.n_points == 1 else n_steps
        layer_rows = calls * total

        def numbers(count: int) -> Tensor:
            return torch.zeros(count, device=device)

        return cls(
            numbers((sizes.n_pairs + 1) * layer_rows * sizes.numbers_per_row()),
            numbers(layer_rows * sizes.numbers_per_end()),
            numbers(sizes.points_room(n_steps, total)),
            numbers(total * sizes.numbers_per_half()),
            layer_rows,
        )


class Recipe(NamedTuple):
    """The numbers of a run that all its updates share."""

    n_steps: int
    gamma: float
    weight_decay: float


def arguments(
    weights: Weights,
    problems: Problems,
    updates: Updates,
    recipe: Recipe,
    room: Room,
    outcome: tuple[Tensor, Tensor, Tensor],
) -> tuple[Any, ...]:
    """The arguments of `learn_updates`; `outcome`: arrived (1, zero), bad and losses (k, zero)."""

    def address(tensor: Tensor) -> int:
        assert tensor.is_contiguous()
        return tensor.data_ptr()

    return (
        *map(address, (*weights, *problems, *updates)),
        np.int32(len(updates.tasks)),
        np.int32(recipe.n_steps),
        np.float32(recipe.gamma),
        np.float32(recipe.weight_decay),
        np.int32(room.layer_rows),
        *map(address, (room.rows, room.ends, room.points, room.halves)),
        *map(address, outcome),
    )


@cache
def _kernel(sizes: Sizes, device: int) -> Any:
    import cupy  # pyright: ignore[reportMissingImports]

    with cupy.cuda.Device(device):
        module = cupy.RawModule(code=_FOR_A_GPU + sizes.source(), options=("-std=c++17",))
        function = module.get_function("learn_updates")
        function.max_dynamic_shared_size_bytes = sizes.shared_bytes()
        return function


def launch(sizes: Sizes, blocks: int, stream: torch.cuda.Stream, values: tuple[Any, ...]) -> None:
    """Queue updates on a stream; blocks wait for one another, so all of them must fit at once.

    A block takes a multiprocessor: no more of them, over all streams, than the GPU has.
    """
    import cupy  # pyright: ignore[reportMissingImports]

    device = stream.device.index or 0
    with cupy.cuda.Device(device), cupy.cuda.Stream.from_external(stream):
        kernel = _kernel(sizes, device)
        kernel((blocks,), (sizes.threads,), values, shared_mem=sizes.shared_bytes())
