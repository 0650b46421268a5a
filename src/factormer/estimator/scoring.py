"""How well known components predict entries that are hidden from them."""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from factormer.data import Blocks, Matrix
from factormer.data.factors import Factors
from factormer.problem.loss import Loss
from factormer.select.holdout import Speckled, parts_of

_SEED = 0  # what is hidden depends on the shape of the data alone


def held_out_score(
    V: Matrix,
    H: Float[Tensor, "n r"],
    loss: Loss,
    holdout: float,
    coefficients: Callable[[Matrix], Float[Tensor, "m r"]],
) -> float:
    """Minus the mean loss of hidden entries, each predicted from the others of its row.

    A component that the others hardly show may get any coefficient, if there are as many components
    as entries of a row: no prediction counts as more than the largest entry.
    """
    parts = parts_of(holdout)
    if isinstance(V, Blocks):
        raise ValueError(
            f"X is a {V.reader.kind} that is read in blocks, of which no entries can be hidden: "
            "score rows that fit into memory, as a sample of X does"
        )
    speckled = Speckled.of(V, parts, _SEED, by_rows=True)
    total, weight, most = 0.0, 0.0, float(speckled.values.max())
    for part in range(parts):
        if bool((speckled.part == part).any()):
            W = coefficients(speckled.without(part))
            losses, weights = speckled.errors(part, Factors(W, H), loss, most)
            total, weight = total + losses, weight + weights
    return -total / weight
