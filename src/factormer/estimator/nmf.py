"""NMF, the scikit-learn estimator: read options, fit, store; transform, invert, stream."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from factormer.data import Matrix
from factormer.data.dask import is_dask
from factormer.data.factors import Factors
from factormer.data.intake import as_matrix, as_tensor, like
from factormer.data.keywords import check_limits
from factormer.data.warn import warn
from factormer.estimator import persistence, streaming
from factormer.estimator.callbacks import CallbackSupportMixin, with_callbacks
from factormer.estimator.fitting import (
    reconstruction_error,
    request_of,
    seeded,
    warn_of_the_end,
)
from factormer.estimator.lazy import lazily
from factormer.estimator.options import Asked, check_forgetting, check_streamable, loss_of, rank_of
from factormer.estimator.reading import is_tensor, read, rebuilt, returned, validated
from factormer.estimator.scoring import held_out_score
from factormer.estimator.selecting import selected
from factormer.estimator.streaming import Coders, copied
from factormer.functions import with_volumes
from factormer.kernels.threads import threads
from factormer.run.choose import choose
from factormer.run.execute import execute
from factormer.run.result import Result
from factormer.run.settle import coefficients, is_least_squares
from factormer.run.watch import Hooks, all_of, bar
from factormer.select.ranks.choice import Choice
from factormer.solvers.online import Statistics


class NMF(CallbackSupportMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Nonnegative matrix factorization X ≈ W @ components_, W and components_ ≥ 0.

    It minimises, with H = components_ and scikit-learn's meaning of each letter,
    d(X, WH) + alpha_W·n_features·(l1_ratio·‖W‖₁ + ½(1 − l1_ratio)·‖W‖²)
    + alpha_H·n_samples·(l1_ratio·‖H‖₁ + ½(1 − l1_ratio)·‖H‖²).

    Parameters
    ----------
    n_components : int, "auto", "select" or None
        Rank; "auto" takes that of a custom start. Otherwise both are the number of features.
        "select" chooses it from 1 to 16, as `select_rank` does, and warns where it is not clear.
    init : str or None
        As in `factorize`; also scikit-learn's "nndsvdar", and None: "nndsvda", or "random" where
        the rank is above min(n_samples, n_features).
    solver : str
        As in `factorize`; scikit-learn's "cd", coordinate descent, is "hals" here.
    beta_loss : str or float
        d: "frobenius" (½‖X − WH‖²), "kullback-leibler", "itakura-saito", or the β of a
        β-divergence, which 2, 1 and 0 are.
    tol, stop, max_iter, accelerator, safeguard, time_limit, device, engine, memory_limit, folder
        As in `factorize`.
    random_state : int, RandomState or None
        Seed of the random choices; None draws one from numpy's.
    alpha_W, alpha_H, l1_ratio : float
        The penalties; alpha_H "same" is alpha_W.
    regularize_W, regularize_H : Penalty or several, optional
        Of `factormer.penalties`, on W and on components_ᵀ: rows are samples, and features.
    symmetric : bool
        X ≈ H Hᵀ, for X = Xᵀ.
    missing : {"nan", "zeros"}, optional
        Which entries of X are not known; by default all are, and NaN is refused.
    verbose : int
        Above 0: show a bar with the iterations and the error.
    shuffle : bool
        Accepted, without effect.
    n_init : int
        Runs from different starts, of which the best is kept.
    warm_start : bool
        Whether `fit` starts from the components of the previous fit.
    fixed_components : array-like, optional
        Rows of components_ that are known, (k, n_features): they come first and stay as they are.
        Or a mask of the rows of a custom H.
    order : {"share", None}
        Components by their share of the sum of W Hᵀ, the largest first; None: unchanged.
    scale : {"balanced", "sum", None}
        Components with ‖w_c‖ = ‖h_c‖, or of sum 1; None: unchanged. Given starts keep order
        and scale; penalties fix the scale.
    forget_factor : float
        Weight of the past in `partial_fit`, above 0 and at most 1.
    callback : callable, optional
        Called after each iteration with its row of the trace: iteration, seconds, rmse, passes.

    Attributes
    ----------
    components_ : array, (n_components, n_features)
        The right factor, Hᵀ; a tensor where X was one.
    n_components_, n_features_in_, feature_names_in_ : as in scikit-learn
    reconstruction_err_ : float
        √(2 d(X, W @ components_)): for the squared error the Frobenius norm of the difference.
    n_iter_ : int
        Outer iterations made.
    trace_ : Trace
        Error by iteration; plots itself. With another loss or penalties, √(2·objective / entries).
    status_, result_ : Status, Result
        Why the iterations ended; both factors, status and trace.
    choice_ : Choice or None
        How the rank was chosen, with n_components="select".
    """

    n_features_in_: int

    def __init__(
        self,
        n_components: Any = "auto",
        *,
        init: Any = "auto",
        solver: str = "auto",
        beta_loss: Any = "frobenius",
        tol: float | int = 1e-4,
        max_iter: int = 500,
        random_state: Any = None,
        alpha_W: Any = 0.0,
        alpha_H: Any = "same",
        l1_ratio: Any = 0.0,
        regularize_W: Any = None,
        regularize_H: Any = None,
        symmetric: bool = False,
        missing: str | None = None,
        verbose: int = 0,
        shuffle: bool = False,
        accelerator: str | None = "auto",
        time_limit: float | None = None,
        device: str | None = None,
        n_init: int = 1,
        warm_start: bool = False,
        fixed_components: Any = None,
        order: str | None = "share",
        scale: str | None = "balanced",
        engine: str = "auto",
        safeguard: str = "descent",
        stop: str = "auto",
        forget_factor: Any = 0.7,
        callback: Any = None,
        memory_limit: float | str | None = None,
        folder: str | Path | None = None,
    ):
        self.n_components = n_components
        self.init = init
        self.solver = solver
        self.beta_loss = beta_loss
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.alpha_W = alpha_W
        self.alpha_H = alpha_H
        self.l1_ratio = l1_ratio
        self.regularize_W = regularize_W
        self.regularize_H = regularize_H
        self.symmetric = symmetric
        self.missing = missing
        self.verbose = verbose
        self.shuffle = shuffle
        self.accelerator = accelerator
        self.time_limit = time_limit
        self.device = device
        self.n_init = n_init
        self.warm_start = warm_start
        self.fixed_components = fixed_components
        self.order = order
        self.scale = scale
        self.engine = engine
        self.safeguard = safeguard
        self.stop = stop
        self.forget_factor = forget_factor
        self.callback = callback
        self.memory_limit = memory_limit
        self.folder = folder

    def fit(
        self, X: Any, y: Any = None, W: Any = None, H: Any = None,
        mask: Any = None, weights: Any = None, sigma: Any = None,
    ) -> NMF:  # fmt: skip
        """Learn the components of X; see `fit_transform`."""
        self._fit(X, W, H, mask, weights, sigma)
        return self

    def fit_transform(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: Any, y: Any = None, W: Any = None, H: Any = None,
        mask: Any = None, weights: Any = None, sigma: Any = None,
    ) -> Any:  # fmt: skip
        """Learn the components of X and return W, which is what `transform` would return.

        Unless tol is 0, or time ran out: then it is the W of the last iteration. With
        init="custom", W (n_samples, n_components) and H (n_components, n_features) are the start,
        oriented as in scikit-learn. `mask` is true where X is known; `weights` say how much an
        entry, or a row, counts; `sigma` are standard deviations, which stand for weights 1/σ².
        """
        return self._fit(X, W, H, mask, weights, sigma)

    @with_callbacks
    @threads()
    def _fit(
        self, X: Any, W: Any = None, H: Any = None,
        mask: Any = None, weights: Any = None, sigma: Any = None,
    ) -> Any:  # fmt: skip
        given, (X, V) = X, read(self, X, mask, weights, sigma, reset=True)
        started = time.perf_counter()
        with seeded(self, V) as seed:
            self.choice_: Choice | None = selected(self, V, seed)
            rank = None if self.choice_ is None else self.choice_.rank
            before = getattr(self, "components_", None)
            request = request_of(self._options(), V, W, H, before, seed, rank)
            request = with_volumes(request, started)
            plan = choose(request)
            hooks = Hooks.of(self, X, plan.max_iter)
            with bar(bool(self.verbose), plan.max_iter) as look:
                watch = all_of(look, None if hooks is None else hooks.look)
                (result,) = execute(plan, started=started, callback=self.callback, watch=watch)
            error = reconstruction_error(request, result)
        x = Factors(*(F.to(X.device) for F in result.factors)) if is_tensor(X) else result.factors
        self.result_: Result = replace(result, factors=x, as_given=like(given))
        self.trace_, self.status_, self.n_iter_ = result.trace, result.status, result.n_iter
        self._store(self.result_.H, error)
        self._past: tuple[torch.Tensor, int] | None = None
        self._stream: Statistics | None = None
        if hooks is not None:
            hooks.end()
        warn_of_the_end(result, request)
        return self.result_.W

    def _store(self, H: Any, error: float) -> None:
        self.components_, self._coders = copied(H.T), Coders()
        self.n_components_, self.reconstruction_err_ = self.components_.shape[0], error

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]

    def _options(self) -> Any:
        """Return the object that a fit reads the parameters from."""
        return self

    @threads()
    def transform(self, X: Any, mask: Any = None, weights: Any = None, sigma: Any = None) -> Any:
        """The W that fits X ≈ W @ components_ best, under the loss and the penalties on W.

        Exact for the squared error; by iterations, to eight digits of the gradient, for other
        losses, unknown entries and constraints; as far as `time_limit` allows. `mask`, `weights`
        and `sigma` as in `fit`. Of a Dask array it is one, which is computed when asked for.
        """
        check_is_fitted(self)
        check_limits(self.max_iter, self.tol, self.time_limit)
        if is_dask(X) and mask is None and weights is None and sigma is None:
            return lazily(self, X)
        X, V = read(self, X, mask, weights, sigma, reset=False)
        until = None if self.time_limit is None else time.perf_counter() + self.time_limit
        W, whole = self._coefficients(V, until)
        if not whole:
            warn(
                f"transform ran out of time: rows that {self.time_limit:g} s did not reach have "
                "rough coefficients; raise time_limit for exact ones",
                ConvergenceWarning,
            )
        return returned(X, W)

    def _coefficients(self, V: Matrix, until: float | None) -> tuple[torch.Tensor, bool]:
        """W, and whether there was time for all of it."""
        loss, asked = loss_of(self.beta_loss, self.solver), Asked.read(self)
        on_w = asked.on_W(self.n_features_in_)
        if is_least_squares(V, loss, on_w):
            coders = getattr(self, "_coders", None) or Coders()
            return coders.coder(self.components_, asked).within(V, until=until)
        H = as_tensor(self.components_, name="components_", device=None).mT
        coded = coefficients(V, H.to(V.device, V.dtype), loss, on_w, until=until)
        return coded.W, coded.whole

    @threads()
    def score(
        self, X: Any, y: Any = None, mask: Any = None, weights: Any = None, sigma: Any = None,
        *, holdout: float = 0.2,
    ) -> float:  # fmt: skip
        """How well the components predict entries of X that are hidden from them; 0 is best.

        The known entries are divided into parts, each the share `holdout` of every row. Each part
        is predicted by the coefficients that fit the other parts best, as at most the largest
        entry, and the score is minus the mean loss. So more components do not always score higher,
        and `GridSearchCV` can choose penalties and `n_components`. Other arguments as in `fit`.
        """
        check_is_fitted(self)
        check_limits(self.max_iter, self.tol, self.time_limit)
        _, V = read(self, X, mask, weights, sigma, reset=False)
        limit = self.time_limit
        until = None if limit is None else time.perf_counter() + limit
        loss, H = loss_of(self.beta_loss, self.solver), self.components_
        H = as_tensor(H, name="components_", device=None).mT.to(V.device, V.dtype)
        return held_out_score(V, H, loss, holdout, lambda part: self._coefficients(part, until)[0])

    @threads()
    def inverse_transform(self, X: Any) -> Any:
        """The data that coefficients X stand for, X @ components_."""
        check_is_fitted(self)
        return rebuilt(X, self.components_)

    @threads()
    def partial_fit(self, X: Any, y: Any = None) -> NMF:
        """Continue learning from a batch of rows, which is needed only once.

        The first batch is fitted as by `fit`, or gives only a start where it has fewer rows than
        there are components; what was fitted before counts as a batch. After that W is exact for
        the batch, the components follow, and the past keeps the weight `forget_factor`. For the
        squared error, with alpha_W and alpha_H at most.
        """
        check_forgetting(self.forget_factor)
        check_streamable(self)
        first = not hasattr(self, "components_")
        if first:
            X = validated(self, X, reset=True)
            rank = rank_of(self.n_components, X.shape[1], None)
            if X.shape[0] >= rank:
                self._fit(X)
                self.n_steps_ = 1
                return self
            streaming.begin(self, X, rank)
        else:
            X = validated(self, X, reset=False)
        streaming.go_on(self, X, as_matrix(X, device=self.device))
        return self

    def save(self, path: str | Path) -> None:
        """Write the fitted model as one safetensors file: numbers and JSON text, no code.

        The choice of `set_output` is saved; a `callback`, and a random state that is not a number,
        are not.
        """
        check_is_fitted(self)
        persistence.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> NMF:
        """Read a model that `save` wrote; nothing in the file is ever run."""
        model = cls()
        persistence.load_into(model, Path(path))
        model._coders = Coders()
        return model

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing == "nan"
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
