"""An estimator between two calls: the coder of its components, and the stream of rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Dense, Sparse
from factormer.data.factors import Factors
from factormer.data.intake import as_matrix, as_tensor, check_mean
from factormer.estimator.options import Asked, Known, seed_of
from factormer.estimator.reading import returned
from factormer.functions import starting_point
from factormer.problem.error import plain_rmse
from factormer.problem.problem import Problem
from factormer.solvers.coding import Coder
from factormer.solvers.online import Statistics

_PLAIN = (0.0, 0.0, None)


class Coders:
    """The coder of the current components, kept because it is slower to make than to use."""

    def __init__(self) -> None:
        self._kept: tuple[Any, Asked, Coder] | None = None

    def coder(self, components: Any, asked: Asked) -> Coder:
        """The last coder, unless components or penalties have changed since."""
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
    """Copy numbers, to another device or in another precision, by rows."""
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
    """Update H by a batch of rows: the new H, ‖W Hᵀ − V‖ of the batch, and the past.

    W is exact for the batch and H; then H follows, `past` having the weight `kept`.
    """
    mean = Problem(V, H.shape[1]).mean().double()
    if mean:
        check_mean(mean, reach=0.6)  # XᵀW is about that of X to the power of 3/2
    l1, l2 = asked.on_W(V.shape[1]).elastic or (0.0, 0.0)
    past = past.after(V.to(torch.float64), Coder.of(H, l1, l2)(V).double(), kept)
    check_squares(past, mean)
    on_h = asked.on_H(past.n_rows, known)
    H = on_h.placed(past.update(H.double(), on_h).to(V.dtype))
    x = Factors(Coder.of(H, l1, l2)(V), H)
    return H, float(plain_rmse(V, x)) * math.sqrt(math.prod(V.shape)), past


def check_squares(past: Statistics, mean: Float[Tensor, ""]) -> None:
    """Check that WᵀW and XᵀW are finite: with components that sum to 1, W is as large as X."""
    if not bool(past.A.isfinite().all() and past.B.isfinite().all()):
        raise ValueError(
            f"X has a mean of {float(mean):g}, and the squares of its coefficients are beyond "
            "float64: divide all batches by a number of that size"
        )


def begin(model: Any, X: Any, rank: int) -> None:
    """Give the model random components, from a batch too small to be fitted."""
    V = as_matrix(X, device=model.device)
    _, H = starting_point(V, rank, init="random", random_state=seed_of(model.random_state))
    known = Known.read(model.fixed_components, rank, X.shape[1], None)
    H = Asked.read(model).on_H(X.shape[0], known).placed(H)
    model._past = (torch.zeros(rank, rank, dtype=torch.float64), 0)
    model._stream = None
    model._store(returned(X, H), math.nan)


def go_on(model: Any, X: Any, V: Dense | Sparse) -> None:
    """Update the model by one more batch of rows."""
    H = as_tensor(model.components_, name="components_", device=str(V.device)).mT
    if model._stream is None:
        WtW, m = before(model)
        model._stream = Statistics.of_fit(H.double(), WtW.to(H.device), m)
    rank, n = model.components_.shape
    known = Known.read(model.fixed_components, rank, n, model.components_)
    past, asked = model._stream, Asked.read(model)
    H, error, model._stream = learn(V, H, past, asked, known, model.forget_factor)
    model._store(returned(X, H), error)
    model.n_steps_ = getattr(model, "n_steps_", 0) + 1
    model.n_iter_ = getattr(model, "n_iter_", 0) + 1


def before(model: Any) -> tuple[torch.Tensor, int]:
    """WᵀW and the number of rows of the fit that a stream continues from."""
    if model._past is None:
        W = model.result_.factors.W.double()
        model._past = (W.mT @ W, len(W))
    return model._past
