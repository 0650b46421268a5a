"""Which entries of V count, and how much: a mask, weights, or zeros that are not known."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from factormer.app.read import Data
from factormer.data.intake import is_sparse


class Counts(NamedTuple):
    """Mask and weights, of V's shape; weights may also be one number for each row."""

    mask: Any = None
    weights: Any = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was given."""
        return self.mask is None and self.weights is None

    def keywords(self) -> dict[str, Any]:
        """Return keywords of `factorize`; a column of weights becomes one number for each row."""
        weights = self.weights
        if weights is not None and weights.shape[1:] == (1,):
            weights = _dense(weights)[:, 0]
        return {"mask": self.mask, "weights": weights}

    def checksum(self) -> str:
        """Of the numbers; "" where there are none."""
        given = {name: A for name, A in self._asdict().items() if A is not None}
        return "".join(f"+{name}:{Data.of(A).checksum()}" for name, A in given.items())

    def known(self, V: Any, missing: str | None) -> Any:
        """How much each entry counts, 0 where it is not known; None where all count the same.

        NaN is handled where V is read.
        """
        mask = None if self.mask is None else self.mask != 0
        parts = [A for A in (mask, self.weights) if A is not None] + ([V != 0] if missing else [])
        if not parts:
            return None
        if not is_sparse(V):
            known = np.ones(V.shape)
            for part in parts:
                known *= _dense(part)
            return known
        known = scipy.sparse.csr_array(parts.pop(-1 if missing else 0))  # of V's shape, and sparse
        known = known.astype(np.float64)
        for part in parts:
            known = known.multiply(part).tocsr()
        return known


def _dense(A: Any) -> np.ndarray:
    return A.toarray() if is_sparse(A) else np.asarray(A)
