"""MiniBatchNMF, scikit-learn's estimator for data that comes, or is read, a batch at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from factormer.data import Blocks
from factormer.data.dask import Distributed, is_dask
from factormer.data.factors import Factors
from factormer.data.intake import as_matrix, as_tensor
from factormer.data.keywords import check_limits
from factormer.data.unwrapped import unwrapped
from factormer.data.warn import warn
from factormer.estimator.batches import Batches, joined, outside
from factormer.estimator.lazy import lazily
from factormer.estimator.learning import Learner, Learning, Watch, visited
from factormer.estimator.options import (
    Asked,
    check_count,
    check_poles,
    check_share,
    init_of,
    is_whole,
    loss_of,
    rank_of,
    seed_of,
    start_array,
)
from factormer.estimator.reading import check_width, is_tensor, rebuilt, returned, validated
from factormer.kernels.threads import threads
from factormer.problem.problem import Problem
from factormer.run.result import Status
from factormer.run.watch import counted


class MiniBatchNMF(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """`NMF` by batches of rows, for data that is too large, or that arrives over time.

    The objective is that of `NMF`. Each batch gets the W that is best for the components, and joins
    what is kept of those before it: for the squared error XᵀW and WᵀW, for other losses the sums of
    their majorizers. The components follow.

    Parameters
    ----------
    n_components : int, "auto" or None
        Rank; "auto" takes that of a custom start. Otherwise both are the number of features.
    init : str or None
        The start of a fit of one batch, from which all begins: as in `NMF`. With "custom" it begins
        at W and H.
    batch_size : int
        Rows of a batch in `fit`. More of them come closer to the best fit, more slowly.
    beta_loss : str or float
        As in `NMF`.
    tol : float
        `fit` ends when the components change by less than this, relative to their norm, from one
        visit of all data to the next; 0: never.
    max_no_improvement : int or None
        `fit` ends after so many batches that did not lower the moving average of the loss; from
        the second visit of the data on. None: never.
    max_iter : int
        How often `fit` visits all data, at most.
    alpha_W, alpha_H, l1_ratio : float
        Penalties, as in `NMF`.
    forget_factor : float
        Weight that the past keeps, from 0 to 1: over one visit of all data in `fit`, and at each
        call of `partial_fit`. With 1 and the squared error, `fit` is exact descent on all data.
    fresh_restarts : bool
        For losses other than the squared error, whether W of a batch is found anew at each visit,
        and not from where it was. The squared error has the exact W in any case.
    fresh_restarts_max_iter, transform_max_iter : int
        Iterations for that W, and for W in `transform` (None: max_iter); not for the squared error.
    random_state : int, RandomState or None
        Seed of the rows of the first batch, and of its start.
    verbose : int
        Above 0: show a bar.

    Attributes
    ----------
    components_ : array, (n_components, n_features)
    n_components_, n_features_in_, feature_names_in_ : as in scikit-learn
    reconstruction_err_ : float
        √(2 d(X, W @ components_)) at the end of `fit`.
    n_iter_, n_steps_ : int
        Visits of all data begun, and batches seen.
    """

    n_features_in_: int

    def __init__(
        self,
        n_components: Any = "auto",
        *,
        init: Any = "auto",
        batch_size: int = 1024,
        beta_loss: Any = "frobenius",
        tol: float | int = 1e-4,
        max_no_improvement: int | None = 10,
        max_iter: int = 200,
        alpha_W: Any = 0.0,
        alpha_H: Any = "same",
        l1_ratio: Any = 0.0,
        forget_factor: Any = 0.7,
        fresh_restarts: bool = False,
        fresh_restarts_max_iter: int = 30,
        transform_max_iter: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.n_components = n_components
        self.init = init
        self.batch_size = batch_size
        self.beta_loss = beta_loss
        self.tol = tol
        self.max_no_improvement = max_no_improvement
        self.max_iter = max_iter
        self.alpha_W = alpha_W
        self.alpha_H = alpha_H
        self.l1_ratio = l1_ratio
        self.forget_factor = forget_factor
        self.fresh_restarts = fresh_restarts
        self.fresh_restarts_max_iter = fresh_restarts_max_iter
        self.transform_max_iter = transform_max_iter
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, W: Any = None, H: Any = None) -> MiniBatchNMF:
        """Learn the components of X; see `fit_transform`."""
        self._fit(X, W, H)
        return self

    def fit_transform(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: Any, y: Any = None, W: Any = None, H: Any = None
    ) -> Any:
        """Learn the components of X, a batch at a time, and return what `transform` would.

        X may be a file or a store, as for `NMF`: one batch at a time is in memory. All chunks of a
        Dask array are one batch, and W is a Dask array: its rows never leave the workers.
        With init="custom", W (n_samples, n_components) and H (n_components, n_features) are the
        start. Ctrl-C ends the fit: the components after the last batch are kept, with a warning.
        """
        return self._fit(X, W, H)

    @threads()
    @torch.no_grad()
    def _fit(self, X: Any, W: Any, H: Any) -> Any:
        batches, learner = self._read(X, reset=True)
        rank = rank_of(self.n_components, batches.V.shape[1], H)
        state, W = self._begin(learner, batches, rank, W, H)
        if W is None:
            state, end = self._by_chunks(batches.V, learner, state)
        else:
            state, end = self._by_batches(batches, learner, state, W)
        self._keep(X, learner, state)
        if end is Status.INTERRUPTED:
            words = "The fit was interrupted: the model has the components after the last batch."
            warn(words, ConvergenceWarning)
        if end is Status.MAX_ITER and self.tol and self.max_iter:
            warn(
                f"Maximum number of iterations {self.max_iter} reached. Increase it to improve "
                "convergence, or tol to accept a rougher fit.",
                ConvergenceWarning,
            )
        if W is None:
            self.reconstruction_err_ = math.sqrt(2 * visited(batches.V, learner, state)[1])  # pyright: ignore[reportArgumentType]
            return lazily(self, X)
        x = Factors(self._coefficients(batches, learner), state.H)
        self.reconstruction_err_ = math.sqrt(2 * _misfit(batches, learner, x))
        return returned(X, x.W)

    def _by_batches(
        self, batches: Batches, learner: Learner, state: Learning, W: Tensor
    ) -> tuple[Learning, Status]:
        """Learn from one batch after another, until that converges or is interrupted."""
        m, f = batches.V.shape[0], float(self.forget_factor)
        watch, done = Watch(self.tol, self.max_no_improvement, m), False
        self.n_iter_ = self.n_steps_ = 0
        try:
            with counted(bool(self.verbose), self.max_iter * -(-m // batches.size)) as count:
                while self.n_iter_ < self.max_iter and not done:
                    before, visit = state.H, self.n_iter_
                    self.n_iter_ += 1
                    for rows, V in batches:
                        size, old = rows.stop - rows.start, W[rows].clone()
                        replaced, kept = (old, f) if visit else None, f ** (size / m)
                        step = learner.step(state, V, kept, warm=old, replaced=replaced)
                        state, W[rows], cost = step
                        self.n_steps_ += 1
                        count(1)
                        if done := watch.no_gain(cost, size, visit):
                            break
                    done = done or watch.is_still(before, state.H)
        except KeyboardInterrupt:
            return state, Status.INTERRUPTED
        return state, Status.CONVERGED if done else Status.MAX_ITER

    def _by_chunks(self, V: Any, learner: Learner, state: Learning) -> tuple[Learning, Status]:
        """Learn from all chunks of a Dask array, where they are, until that ends likewise."""
        watch, done = Watch(self.tol, self.max_no_improvement, V.shape[0]), False
        self.n_iter_ = self.n_steps_ = 0
        try:
            while self.n_iter_ < self.max_iter and not done:
                before, visit = state.H, self.n_iter_
                self.n_iter_ += 1
                state, *costs = visited(V, learner, state)
                self.n_steps_ += len(V.reader.ends) - 1
                done = watch.no_gain(sum(costs), V.shape[0], visit)
                done = done or watch.is_still(before, state.H)
        except KeyboardInterrupt:
            return state, Status.INTERRUPTED
        return state, Status.CONVERGED if done else Status.MAX_ITER

    @threads()
    @torch.no_grad()
    def partial_fit(self, X: Any, y: Any = None, W: Any = None, H: Any = None) -> MiniBatchNMF:
        """Learn from one more batch of rows, dense or sparse, which is needed only once.

        The components begin with a fit of the first batch, or of `batch_size` of its rows if it has
        more, and at random where it has fewer rows than there are components. W and H are for the
        first one, with init="custom".
        """
        first = not hasattr(self, "components_")
        batches, learner = self._read(X, reset=first)
        V, dtype = batches.V, batches.V.dtype
        if first:
            rank = rank_of(self.n_components, V.shape[1], H)
            state, _ = self._begin(learner, batches, rank, None, H)
            self.n_steps_ = 0
        else:
            self._check_unchanged(learner)
            H = as_tensor(self.components_, name="components_", device=None).mT
            dtype, wide = H.dtype, torch.promote_types(V.dtype, H.dtype)
            V, state = V.to(wide), self._past.at(H.to(wide))
        for _, part in Batches(V, V.shape[0]):
            state, *_ = learner.step(state, part, float(self.forget_factor))
            self.n_steps_ += 1
        self._keep(X, learner, state.at(state.H.to(dtype)))  # in the precision of the first batch
        return self

    @threads()
    @torch.no_grad()
    def transform(self, X: Any) -> Any:
        """The W that fits X ≈ W @ components_ best; exact for the squared error.

        Of a Dask array it is one, which is computed when asked for.
        """
        check_is_fitted(self)
        if is_dask(X):
            return lazily(self, X)
        batches, learner = self._read(X, reset=False)
        return returned(X, self._coefficients(batches, learner))

    @threads()
    def inverse_transform(self, X: Any) -> Any:
        """The data that coefficients X stand for, X @ components_."""
        check_is_fitted(self)
        return rebuilt(X, self.components_)

    # What the methods share

    def _read(self, X: Any, *, reset: bool) -> tuple[Batches, Learner]:
        """The batches of X, all options having been checked."""
        check_limits(self.max_iter, self.tol, None)
        for name in ("batch_size", "fresh_restarts_max_iter"):
            check_count(name, getattr(self, name))
        for name in ("max_no_improvement", "transform_max_iter"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_share("forget_factor", self.forget_factor)
        loss = loss_of(self.beta_loss, "auto")
        X = unwrapped(X)
        blocks = outside(X)
        if blocks is not None:
            check_width(self, blocks.shape[1], reset)
        V = as_matrix(validated(self, X, reset=reset)) if blocks is None else blocks
        if not isinstance(V, Blocks):
            check_poles(V, loss)
        fresh = self.fresh_restarts_max_iter
        learner = Learner(loss, Asked.read(self), bool(self.fresh_restarts), fresh)
        return Batches(V, min(self.batch_size, V.shape[0])), learner

    def _begin(
        self, learner: Learner, batches: Batches, rank: int, W: Any, H: Any
    ) -> tuple[Learning, Tensor | None]:
        """The first components, no past, and W; None if its rows stay with those of X, on Dask."""
        (m, n), V = batches.V.shape, batches.V
        seed = seed_of(self.random_state)
        if isinstance(self.init, str) and self.init == "custom":
            right = as_tensor(start_array(H, (rank, n), "H"), name="H", device=None).mT
            state = learner.begun(right.to(V.device, V.dtype))
            left = None if W is None else start_array(W, (m, rank), "W")
        else:
            sample = batches.sample(np.random.default_rng(seed))
            init = init_of(self.init, rank, (sample.shape[0], n))
            state, left = learner.fitted(sample, rank, init, seed), None
        if isinstance(V, Blocks) and isinstance(V.reader, Distributed):
            return state, None
        room = torch.zeros(m, rank, dtype=V.dtype, device=V.device)
        if left is not None:
            room.copy_(as_tensor(left, name="W", device=None))
        return state, room

    def _coefficients(self, batches: Batches, learner: Learner) -> Tensor:
        H = as_tensor(self.components_, name="components_", device=None).mT
        H = H.to(batches.V.device, batches.V.dtype)
        limit = self.max_iter if self.transform_max_iter is None else self.transform_max_iter
        size = batches.size if isinstance(batches.V, Blocks) else batches.V.shape[0]
        return joined([learner.coded(V, H, limit) for _, V in Batches(batches.V, size)])

    def _check_unchanged(self, learner: Learner) -> None:
        """Refuse to go on with what the past does not have."""
        if learner.loss != self._learned:
            raise ValueError(
                f"beta_loss is {self.beta_loss!r}, and the batches before had another loss, of "
                "which sums are kept: set it back, or begin with a clone"
            )
        if is_whole(self.n_components) and self.n_components != self.n_components_:
            raise ValueError(
                f"n_components is {self.n_components}, and the batches before have "
                f"{self.n_components_} components: set it back, or begin with a clone"
            )

    def _keep(self, X: Any, learner: Learner, state: Learning) -> None:
        H = state.H.mT.contiguous()
        self.components_ = returned(X, H.clone()) if is_tensor(X) else H.cpu().numpy().copy()
        self.n_components_, self._past, self._learned = len(H), state, learner.loss

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _misfit(batches: Batches, learner: Learner, x: Factors) -> float:
    """d(X, W Hᵀ) of all data."""
    rank = x.H.shape[1]
    parts = ((Problem(V, rank, learner.loss), x.W[rows]) for rows, V in batches)
    return sum(float(problem.misfit.value(Factors(W, x.H))) for problem, W in parts)
