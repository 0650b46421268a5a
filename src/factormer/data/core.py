"""Matrices as the compiled core takes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from factormer.data.base import Matrix
from factormer.data.dense import Dense
from factormer.data.lowrank import LowRank
from factormer.data.observed import Observed
from factormer.data.sparse import Sparse


def for_core(V: Matrix) -> Any:
    """A matrix as the core takes it; dense arrays are used where they are."""
    if isinstance(V, Dense):
        entries = V.entries.numpy()
        lies = entries.flags.c_contiguous or entries.flags.f_contiguous
        return entries if lies else np.ascontiguousarray(entries)
    if isinstance(V, Observed):
        if isinstance(V.V, Dense):
            return ("weighted", for_core(V.V), V.weights.numpy())
        return ("sparse", *V.shape, *V.compressed)
    if isinstance(V, LowRank):
        return ("low-rank", V.U.double().numpy(), V.Z.double().numpy(), float(V.lost))
    assert isinstance(V, Sparse)
    return ("sparse", *V.shape, *V.compressed)
