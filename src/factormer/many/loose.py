"""Many matrices on one GPU, which nobody has looked into yet."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from factormer.many.ragged import Ragged


class Loose(NamedTuple):
    """Matrices on one GPU that are not checked yet; their addresses if float32, stored by rows."""

    tensors: Sequence[Tensor]
    m: np.ndarray
    n: np.ndarray
    dtypes: set[torch.dtype]
    pointers: np.ndarray | None

    @staticmethod
    def of(problems: Sequence[Any]) -> Loose | None:
        """None where some are something else."""
        if isinstance(problems, Ragged):
            return _packed(problems)
        if set(map(type, problems)) != {Tensor}:
            return None
        gpus, dtypes = {*map(Tensor.get_device, problems)}, {*map(attrgetter("dtype"), problems)}
        shapes = [*map(attrgetter("shape"), problems)]
        plain = len(gpus) == 1 and min(gpus) >= 0 and dtypes <= {torch.float32, torch.float64}
        if not plain or {*map(len, shapes)} != {2}:
            return None
        sizes = np.fromiter(chain.from_iterable(shapes), int, 2 * len(shapes)).reshape(-1, 2)
        if sizes.min() < 1 or {*map(attrgetter("layout"), problems)} != {torch.strided}:
            return None
        ready = dtypes == {torch.float32} and all(map(Tensor.is_contiguous, problems))
        found = np.fromiter(map(Tensor.data_ptr, problems), int, len(shapes)) if ready else None
        return Loose(problems, sizes[:, 0], sizes[:, 1], dtypes, found)


def _packed(problems: Ragged) -> Loose | None:
    entries = problems.entries
    if not entries.is_cuda or entries.dtype not in (torch.float32, torch.float64):
        return None
    ready = entries.dtype == torch.float32 and entries.is_contiguous()
    found = entries.data_ptr() + 4 * problems.starts if ready else None
    return Loose(problems, problems.shapes[:, 0], problems.shapes[:, 1], {entries.dtype}, found)
