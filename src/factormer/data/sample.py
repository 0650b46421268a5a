"""Some rows of data beyond memory, drawn at random."""

from __future__ import annotations

import numpy as np
import scipy.sparse
import torch

from factormer.data import readings
from factormer.data.blocks import Blocks
from factormer.data.dense import Dense
from factormer.data.intake import as_matrix
from factormer.data.sparse import Sparse


def some_rows(V: Blocks, entries: float, rng: torch.Generator) -> Dense | Sparse:
    """Rows drawn without repeats, with about so many stored entries, in one pass; V has others."""
    m = V.shape[0]
    count = min(max(int(entries / max(V.work() / m, 1.0)), 1), m)
    at = torch.randperm(m, generator=rng)[:count].sort().values.numpy()
    V.record.passes += 1
    readings.add()
    pieces = []
    for rows, block in V.reader.read(V.dtype):
        wanted = at[np.searchsorted(at, rows.start) : np.searchsorted(at, rows.stop)] - rows.start
        pieces.append(block[wanted])
    if scipy.sparse.issparse(pieces[0]):
        return as_matrix(scipy.sparse.vstack(pieces, format="csr"))
    return as_matrix(torch.cat(pieces))
