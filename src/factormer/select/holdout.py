"""Entries of V that a fit does not see, and how well it predicts them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from factormer.data import Dense, Matrix, Observed, Sparse, draws
from factormer.data.factors import Factors
from factormer.data.keywords import is_finite
from factormer.problem.loss import Loss
from factormer.problem.losses import Beta
from factormer.sentence import Sentence

_DENSE = 2e7  # entries up to which sparse data is made dense, where its zeros are data
_BLOCK = 2**20  # numbers at a time
_EVEN = 0.01  # share of the rank-one fit in predictions where a zero would cost infinitely much


@dataclass(frozen=True, eq=False)
class Speckled:
    """The known entries of V, dealt out to parts of about equal size; −1: in no part.

    Each row is spread over the parts as evenly as possible. Entries without which a row or a
    column would be unknown are in no part, and so never hidden.
    """

    V: Observed
    rows: Int[Tensor, " k"]
    columns: Int[Tensor, " k"]
    part: Int[Tensor, " k"]

    @staticmethod
    def of(V: Matrix, parts: int, seed: int, *, by_rows: bool = False) -> Speckled:
        """Deal out the known entries of V at random; `by_rows`: only rows have to stay known."""
        V = _observed(V)
        known = V.known.cpu().numpy()
        if isinstance(V.V, Dense):
            rows, columns = np.nonzero(known)
        else:
            starts = V.V.by_rows.starts.cpu().numpy()
            every = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
            rows, columns = every[known], V.V.by_rows.columns.cpu().numpy()[known]
        m, n = V.shape
        part = _dealt(rows, m, parts, seed)
        for index, size in ((rows, m),) if by_rows else ((columns, n), (rows, m)):
            part[_is_alone(index, part, size, parts)] = -1
        if (part < 0).all():
            side = "a row" if by_rows else "a row or a column"
            raise ValueError(
                f"V is {m}×{n} with {len(rows)} known entries; without any of them {side} would "
                "not be known, so none can be hidden and predicted from the others: pass more data"
            )
        at = (torch.from_numpy(np.asarray(a, np.int64)) for a in (rows, columns, part))
        return Speckled(V, *(a.to(V.device) for a in at))

    @cached_property
    def values(self) -> Float[Tensor, " k"]:
        """The known entries."""
        data = self.V.V
        if isinstance(data, Dense):
            return data.entries[self.rows, self.columns]
        return data.scale * data.by_rows.values[self.V.known]

    @cached_property
    def weights(self) -> Float[Tensor, " k"]:
        """How much each of them counts."""
        if isinstance(self.V.V, Dense):
            return self.V.weights[self.rows, self.columns]
        return self.V.weights[self.V.known]

    def without(self, part: int) -> Observed:
        """V as it is known without a part."""
        weights, hidden = self.V.weights.clone(), self.part == part
        if isinstance(self.V.V, Dense):
            weights[self.rows[hidden], self.columns[hidden]] = 0
        else:
            weights[self.V.known.nonzero()[:, 0][hidden]] = 0
        return Observed(self.V.V, weights)

    def predicted(self, part: int, x: Factors, loss: Loss) -> Float[Tensor, " h"]:
        """Return predictions of a part's entries by factors fitted without it, in float64.

        Where the loss of a zero would be infinite (β ≤ 1), predictions are moved a little: towards
        the product of the means of row and column, or, where V is positive (β ≤ 0), to its least.
        """
        hidden = self.part == part
        i, j = self.rows[hidden], self.columns[hidden]
        W, H = x.W.double(), x.H.double()
        step = max(1, _BLOCK // W.shape[1])
        cuts = range(0, len(i), step)
        y = torch.cat([(W[i[a : a + step]] * H[j[a : a + step]]).sum(dim=1) for a in cuts])
        if not isinstance(loss, Beta) or loss.beta > 1:
            return y
        if loss.has_pole:
            return y.clamp(min=float(self.values.min()))
        return (1 - _EVEN) * y + _EVEN * self._even(part, i, j)

    def _even(self, part: int, i: Int[Tensor, " h"], j: Int[Tensor, " h"]) -> Float[Tensor, " h"]:
        """The product of the means of rows and columns, over the mean, of what is not hidden."""
        seen = self.part != part
        v = self.values[seen].double()
        by_row, by_column = (
            _means(index[seen], v, size)
            for index, size in zip((self.rows, self.columns), self.V.shape, strict=True)
        )
        return by_row[i] * by_column[j] / v.mean().clamp(min=torch.finfo(v.dtype).tiny)

    def error(self, part: int, x: Factors, loss: Loss) -> float:
        """The mean loss of the entries of a part, each with its weight.

        Predictions count as the largest entry that was seen if they are above it: a row of which
        few large entries are seen may be extrapolated a thousandfold, and decide everything.
        """
        most = float(self.values[self.part != part].max())
        total, weight = self.errors(part, x, loss, most)
        return total / weight

    def errors(
        self, part: int, x: Factors, loss: Loss, most: float | None = None
    ) -> tuple[float, float]:
        """The sum of the losses of the entries of a part, and that of their weights.

        Predictions count as `most` if they are above it.
        """
        hidden = self.part == part
        v, w = self.values[hidden].double(), self.weights[hidden].double()
        y = self.predicted(part, x, loss)
        y = y if most is None else y.clamp(max=most)
        return float((w * loss(v, y)).sum()), float(w.sum())


def parts_of(holdout: Any) -> int:
    """Into how many parts entries are divided, if each is this share of them."""
    if not is_finite(holdout) or isinstance(holdout, bool) or not 0 < holdout <= 0.5:
        raise ValueError(
            Sentence(
                "{holdout} is {given!r}; it must be a share of the entries above 0 and at most 0.5",
                given=holdout,
            )
        )
    return max(2, round(1 / float(holdout)))


def _observed(V: Matrix) -> Observed:
    """V with a weight for each entry; zeros of sparse data are data."""
    if isinstance(V, Sparse):
        m, n = V.shape
        if m * n > _DENSE:
            raise ValueError(
                Sentence(
                    "V is sparse, {m}×{n}, and its zeros are data: hiding some of them takes all "
                    "{all:.2g} entries, and at most {most:.0g} are made dense; pass a random part "
                    "of the rows, or {missing=zeros} where zeros are not known",
                    m=m,
                    n=n,
                    all=m * n,
                    most=_DENSE,
                )
            )
        ((_, entries),) = V.blocks(None)
        V = Dense(entries)
    if isinstance(V, Dense):
        return Observed(V, torch.ones_like(V.entries))
    assert isinstance(V, Observed)
    return V


def _dealt(rows: np.ndarray, m: int, parts: int, seed: int) -> np.ndarray:
    """A part for each entry: those of a row in turn, in random order, from a random one on."""
    key = draws.uniform(seed, (len(rows),)).numpy()
    first = (draws.uniform(draws.following(seed), (m,)).numpy() * parts).astype(np.int64)
    order = np.lexsort((key, rows))
    starts = np.concatenate([[0], np.bincount(rows, minlength=m).cumsum()[:-1]])
    place = np.empty(len(rows), np.int64)
    place[order] = np.arange(len(rows)) - starts[rows[order]]
    return (place + first[rows]) % parts


def _is_alone(index: np.ndarray, part: np.ndarray, size: int, parts: int) -> np.ndarray:
    """Entries of rows, or columns, whose known entries are all in one part."""
    among = part >= 0
    counts = np.bincount(index[among] * parts + part[among], minlength=size * parts)
    most, total = counts.reshape(size, parts).max(axis=1), np.bincount(index, minlength=size)
    return among & (most == total)[index]


def _means(index: Any, v: Float[Tensor, " k"], size: int) -> Float[Tensor, " s"]:
    """Of the values at each index, and of one that is the mean of all: none is 0 by chance."""
    total, count = v.mean().repeat(size), v.new_ones(size)
    total.index_add_(0, index, v)
    count.index_add_(0, index, torch.ones_like(v))
    return total / count
