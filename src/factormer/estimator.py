"""NMF, the scikit-learn estimator: validate, factorise, store."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from factormer.engine import coefficients, factorize
from factormer.solve import Result
from factormer.validate import to_numpy

_SPARSE = ("csr", "csc", "coo")
_FLOATS = [np.float64, np.float32]


def _has_finite_sum(X: np.ndarray) -> bool:
    """Whether there are entries and all are finite; not so, too, where only their sum is not."""
    with np.errstate(over="ignore", invalid="ignore"):
        return X.size > 0 and bool(np.isfinite(X.sum()))


class NMF(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Nonnegative matrix factorization X ≈ W @ components_, W and components_ ≥ 0.

    Parameters
    ----------
    n_components : int, optional
        Rank; by default the number of features.
    init, solver, accelerator, max_iter, tol, time_limit, device
        As in `factorize`.
    random_state : int or RandomState, optional
        Seed of the random choices.

    Attributes
    ----------
    components_ : ndarray, (n_components, n_features)
        The right factor, Hᵀ.
    reconstruction_err_ : float
        Frobenius norm of X − W @ components_.
    n_iter_ : int
        Outer iterations made.
    result_ : Result
        Factors, status and trace of the fit.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        init: str = "auto",
        solver: str = "auto",
        accelerator: str | None = "auto",
        max_iter: int = 200,
        tol: float = 1e-4,
        time_limit: float | None = None,
        device: str | None = None,
        random_state: Any = None,
    ):
        self.n_components = n_components
        self.init = init
        self.solver = solver
        self.accelerator = accelerator
        self.max_iter = max_iter
        self.tol = tol
        self.time_limit = time_limit
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> NMF:
        """Learn the components of X."""
        self.fit_transform(X)
        return self

    def fit_transform(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: Any, y: Any = None, W: Any = None, H: Any = None
    ) -> np.ndarray:
        """Learn the components of X and return W.

        With init="custom", W (n_samples, n_components) and H (n_components, n_features) are the
        start, oriented as in scikit-learn.
        """
        X = self._validated(X)
        seed: Any = self.random_state
        if not isinstance(seed, int | np.integer):  # which is used as it is: that is faster
            seed = check_random_state(seed).randint(2**31 - 1)
        result = factorize(
            X,
            X.shape[1] if self.n_components is None else self.n_components,
            init=self.init,
            solver=self.solver,
            accelerator=self.accelerator,
            max_iter=self.max_iter,
            tol=self.tol,
            time_limit=self.time_limit,
            device=self.device,
            random_state=int(seed),
            W=W,
            H=None if H is None else np.asarray(H).T,
        )
        self.result_: Result = result
        self.components_ = result.H.T
        self.n_components_ = self._n_features_out = self.components_.shape[0]
        self.reconstruction_err_ = float(result.rmse) * np.sqrt(X.shape[0] * X.shape[1])
        self.n_iter_ = result.n_iter
        return result.W

    def _validated(self, X: Any) -> Any:
        """X as floating numbers; of plain arrays, only whether all are finite is asked here."""
        kind = type(X)
        if kind is np.ndarray and X.ndim == 2 and X.dtype in _FLOATS and _has_finite_sum(X):
            vars(self).pop("feature_names_in_", None)  # of an earlier fit
            self.n_features_in_ = X.shape[1]
            return X
        return validate_data(self, X, accept_sparse=_SPARSE, dtype=_FLOATS)

    def transform(self, X: Any) -> np.ndarray:
        """Nonnegative least-squares coefficients of the rows of X in the fitted components."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse=_SPARSE, dtype=_FLOATS, reset=False)
        return to_numpy(coefficients(X, self.components_.T))

    def inverse_transform(self, X: Any) -> np.ndarray:
        """The data that coefficients X stand for, X @ components_."""
        check_is_fitted(self)
        return np.asarray(X) @ self.components_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
