"""W for components that are known: of new rows, of the rows in hand, of a stream of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Dense, Matrix, Sparse
from factormer.data.factors import Factors
from factormer.data.intake import as_tensor, check_mean
from factormer.estimator.options import Asked, Known
from factormer.problem.losses import Beta
from factormer.problem.penalties import Penalties
from factormer.problem.problem import Problem
from factormer.run import general
from factormer.solvers.coding import Coder
from factormer.solvers.online import Statistics

_PLAIN = (0.0, 0.0, None)


def coefficients(
    V: Matrix,
    H: Float[Tensor, "n r"],
    loss: Beta,
    on_w: Penalties,
    W: Tensor | None = None,
    *,
    until: float | None = None,
) -> tuple[Float[Tensor, "m r"], int]:
    """The best W for V and H, and after how many iterations.

    Exact for least squares, which counts as one; else by iterations from W or from equals.
    """
    if is_least_squares(V, loss, on_w):
        return Coder.of(H, *(on_w.by_rows or _PLAIN))(V, W, until=until), 1
    result = general.code(V, H, loss, on_w, W, until=until)
    return result.factors.W, result.n_iter


def is_least_squares(V: Matrix, loss: Beta, on_w: Penalties) -> bool:
    """Whether rows of W are the answers to least-squares problems that can be solved exactly."""
    return loss.beta == 2 and on_w.by_rows is not None and isinstance(V, Dense | Sparse)


class Coders:
    """The coder of the components in hand, kept since it takes longer to make than to use once."""

    def __init__(self) -> None:
        self._kept: tuple[Any, Asked, Coder] | None = None

    def coder(self, components: Any, asked: Asked) -> Coder:
        """That of the last time, unless components or penalties were changed since."""
        if self._kept is None or not self._serves(components, asked):
            H = as_tensor(components, name="components_", device=None).mT
            coder = Coder.of(H, *(asked.on_W(len(H)).by_rows or _PLAIN))
            self._kept = (copied(components), asked, coder)
        return self._kept[2]

    def _serves(self, components: Any, asked: Asked) -> bool:
        assert self._kept is not None
        before, then, _ = self._kept
        if asked != then or type(components) is not type(before):
            return False
        equal = torch.equal if isinstance(components, Tensor) else np.array_equal
        return bool(equal(components, before))


def copied(array: Any) -> Any:
    """The same numbers elsewhere, by rows."""
    if isinstance(array, Tensor):
        return array.clone(memory_format=torch.contiguous_format)
    return array.copy()


def learn(
    V: Dense | Sparse,
    H: Float[Tensor, "n r"],
    past: Statistics,
    asked: Asked,
    known: Known | None,
    kept: float | int,
) -> tuple[Float[Tensor, "n r"], float, Statistics]:
    """Go on from H with a batch of rows: the new H, ‖W Hᵀ − V‖ of the batch, and the past.

    W is exact for the batch and H; then H follows, `past` having the weight `kept`.
    """
    mean = Problem(V, H.shape[1]).mean().double()
    if mean:
        check_mean(mean, reach=0.6)  # XᵀW is about that of X to the power of 3/2
    l1, l2 = asked.on_W(V.shape[1]).elastic or (0.0, 0.0)
    past = past.after(V.to(torch.float64), Coder.of(H, l1, l2)(V).double(), kept)
    on_h = asked.on_H(past.n_rows, known)
    H = on_h.placed(past.update(H.double(), on_h).to(V.dtype))
    x = Factors(Coder.of(H, l1, l2)(V), H)
    return H, float(plain_rmse(V, x)) * math.sqrt(math.prod(V.shape)), past


def plain_rmse(V: Matrix, x: Factors) -> Float[Tensor, ""]:
    """‖W Hᵀ − V‖ / √(mn); of V divided by its mean where squares would not be numbers."""
    problem = Problem(V, x.W.shape[1])
    mean, root, unit = float(problem.mean()), torch.finfo(V.dtype).max ** 0.25, None
    if mean and not 1 / root < mean < root:
        problem, unit = problem.normalized()
        x = x.scale(1 / unit)
    error = (problem.sq_error(x) / problem.size()).sqrt()
    return error if unit is None else unit * error
