"""transform() of a Dask array: another Dask array, chunk by chunk, on the workers."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from factormer.data.dask import distributed_of
from factormer.data.intake import as_tensor, to_numpy
from factormer.estimator.reading import check_width

_NOT_SENT = ("callback", "folder", "fixed_components", "regularize_H", "time_limit")


def lazily(model: Any, X: Any) -> Any:
    """The coefficients as a Dask array with the chunks of X; nothing is computed yet.

    A task gets its chunk and the components. Other chunks than whole rows are refused now; entries
    that are negative or not finite, once they are computed.
    """
    distributed_of(X)  # which checks it
    check_width(model, X.shape[1], False)
    sent: Any = clone(model)
    known = sent.get_params(deep=False)
    sent.set_params(**{name: None for name in _NOT_SENT if name in known}, verbose=0)
    sent.components_ = to_numpy(as_tensor(model.components_, name="components_", device=None))
    sent.n_features_in_ = model.n_features_in_
    dtype = np.float32 if X.dtype == np.float32 else np.float64
    rank = len(sent.components_)
    return X.map_blocks(
        _coefficients,
        sent,
        np.dtype(dtype),
        dtype=dtype,
        chunks=(X.chunks[0], (rank,)),
        meta=np.empty((0, 0), dtype),
    )


def _coefficients(chunk: Any, model: Any, kind: np.dtype) -> np.ndarray:
    """Return the coefficients of one chunk, on a worker."""
    rank = len(model.components_)
    return model.transform(chunk) if chunk.shape[0] else np.empty((0, rank), kind)
