"""A part of V that is small enough to look at closely."""

from __future__ import annotations

import numpy as np
import torch

from factormer.data import Dense, Matrix, Observed, Sparse, draws
from factormer.data.sparse import Rows

_ENTRIES = 200_000  # at most
_COLUMNS = 500


def part_of(V: Matrix, seed: int) -> Matrix | None:
    """V, or a part of it that is small enough; without empty rows and columns. None: all zeros."""
    if isinstance(V, Observed):
        return _some_rows(V, seed)
    sums = [np.asarray((A @ _ones(A)).double().cpu())[:, 0] for A in (V, V.T)]
    if not all((s > 0).any() for s in sums):
        return None
    n = min(int((sums[1] > 0).sum()), _COLUMNS)
    m = max(1, _ENTRIES // n)
    keys = [draws.uniform(seed + k, s.shape).numpy() * (s > 0) for k, s in enumerate(sums)]
    if isinstance(V, Sparse):
        keys = sums
    rows, columns = (
        np.sort(np.argsort(-key, kind="stable")[: min(size, int((s > 0).sum()))])
        for key, s, size in zip(keys, sums, (m, n), strict=True)
    )
    return Dense(_entries(V, rows)[:, torch.from_numpy(columns).to(V.device)])


def _ones(V: Matrix) -> torch.Tensor:
    return torch.ones(V.shape[1], 1, dtype=V.dtype, device=V.device)


def _entries(V: Matrix, rows: np.ndarray) -> torch.Tensor:
    """Some rows of V, dense."""
    if isinstance(V, Dense):
        return V.entries[torch.from_numpy(rows).to(V.device)]
    assert isinstance(V, Sparse)
    return torch.cat([V.scale * V.by_rows.block(i, i + 1).to_dense() for i in rows.tolist()])


def _some_rows(V: Observed, seed: int) -> Observed | None:
    """Rows at random, with about as many known entries as are looked at."""
    if not float(V.total()) > 0:
        return None
    share = _ENTRIES / float(V.count())
    if share >= 1:
        return V
    m = V.shape[0]
    order = draws.uniform(seed, (m,)).numpy().argsort(kind="stable")
    rows = np.sort(order[: max(2, int(share * m))])
    at = torch.from_numpy(rows).to(V.device)
    if isinstance(V.V, Dense):
        return Observed(Dense(V.V.entries[at]), V.weights[at])
    starts = V.V.by_rows.starts.long()
    counts = starts.diff()[at]
    places = [torch.arange(int(starts[i]), int(starts[i + 1])) for i in rows.tolist()]
    inside = torch.cat(places).to(V.device)
    begins = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(V.V.by_rows.starts.dtype)
    whole = V.V.by_rows
    some = Rows(begins, whole.columns[inside], whole.values[inside], n=whole.n)
    return Observed(Sparse(some, V.V.scale), V.weights[inside])
