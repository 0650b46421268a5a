"""Training on your own matrices: random rows and columns of those in some files.

The rows of each file are split into training and evaluation rows, so that the figures on a card
come from rows that training did not see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from factormer_lab.train.anyrank.problems import Shape

_HELD_OUT = 0.2  # share of the rows
_SMALLEST = 12  # rows and columns that a part must have, at least
_SLACK = 1.3  # m, n ≥ 1.3 r, as for synthetic problems
_TRIES = 20


@dataclass(frozen=True)
class Parts:
    """Random rows and columns of matrices, each part of mean square 1."""

    names: tuple[str, ...]
    matrices: tuple[Float[Tensor, "rows columns"], ...]

    def fitting(self, shape: Shape) -> Shape:
        m, n, r = shape
        m = min(m, *(len(V) for V in self.matrices))
        n = min(n, *(V.shape[1] for V in self.matrices))
        return m, n, min(r, int(min(m, n) / _SLACK))

    def draw(self, shape: Shape, per_kind: int, rng: torch.Generator) -> Float[Tensor, "b m n"]:
        parts = [_part(V, shape, rng) for V in self.matrices for _ in range(per_kind)]
        return torch.stack(parts).to(rng.device)


def parts_of(files: Sequence[str]) -> tuple[Parts, Parts]:
    """The parts to train on and those to evaluate on, of disjoint rows."""
    names, pairs = tuple(Path(file).stem for file in files), [_dealt(Path(file)) for file in files]
    seen, unseen = zip(*pairs, strict=True)
    return Parts(names, seen), Parts(names, unseen)


def _dealt(path: Path) -> tuple[Tensor, Tensor]:
    V = torch.from_numpy(_read(path))
    order = torch.randperm(len(V), generator=torch.Generator().manual_seed(0))
    kept = round(_HELD_OUT * len(V))
    if min(kept, V.shape[1]) < _SMALLEST:
        needed = int(_SMALLEST / _HELD_OUT)
        raise ValueError(
            f"{path}: the matrix is {len(V)}×{V.shape[1]}; it must have at least {needed} rows and "
            f"{_SMALLEST} columns: add data, or use its transpose"
        )
    return V[order[kept:]], V[order[:kept]]


def _read(path: Path) -> np.ndarray:
    """The matrix in a .npy file, or in a .npz under the key V or alone; nothing is executed."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; data names .npy or .npz files")
    contents = np.load(path, allow_pickle=False)
    if not isinstance(contents, np.ndarray):
        with contents:
            keys = contents.files
            key = "V" if "V" in keys else keys[0]
            if key != "V" and len(keys) > 1:
                raise ValueError(f"{path}: expected an array named 'V', found {sorted(keys)}")
            contents = contents[key]
    if contents.ndim != 2 or not np.issubdtype(contents.dtype, np.number):
        raise ValueError(
            f"{path}: expected a matrix of numbers, found {contents.dtype} of shape "
            f"{contents.shape}; save it by np.save"
        )
    V = contents.astype(np.float32)
    if not np.isfinite(V).all() or V.min() < 0:
        raise ValueError(f"{path}: entries must be finite and at least 0; clean the matrix first")
    return V


def _part(V: Tensor, shape: Shape, rng: torch.Generator) -> Float[Tensor, "m n"]:
    """Some rows and columns; drawn again while all of them are zero."""
    m, n, _ = shape
    for _ in range(_TRIES):
        rows = torch.randperm(len(V), generator=rng, device=rng.device)[:m].cpu()
        columns = torch.randperm(V.shape[1], generator=rng, device=rng.device)[:n].cpu()
        part = V[rows][:, columns]
        if part.any():
            return part / part.square().mean().sqrt()
    raise ValueError(f"{_TRIES} random {m}×{n} parts of the matrix were all zero; drop empty rows")
