"""NMF, the scikit-learn estimator: validate, factorise, store."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted, validate_data

from factormer.engine import coefficients, factorize
from factormer.solve import Result
from factormer.validate import to_numpy


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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "init": [str],
        "solver": [str],
        "accelerator": [str, None],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "time_limit": [Interval(Real, 0, None, closed="neither"), None],
        "device": [str, None],
        "random_state": ["random_state"],
    }

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
        self._validate_params()
        X = validate_data(self, X, dtype=[np.float64, np.float32])
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        result = factorize(
            X,
            self.n_components or X.shape[1],
            init=self.init,
            solver=self.solver,
            accelerator=self.accelerator,
            max_iter=self.max_iter,
            tol=self.tol,
            time_limit=self.time_limit,
            device=self.device,
            random_state=seed,
            W=W,
            H=None if H is None else np.asarray(H).T,
        )
        self.result_: Result = result
        self.components_ = result.H.T
        self.n_components_ = self._n_features_out = self.components_.shape[0]
        self.reconstruction_err_ = float(result.rmse) * np.sqrt(X.size)
        self.n_iter_ = result.n_iter
        return result.W

    def transform(self, X: Any) -> np.ndarray:
        """Nonnegative least-squares coefficients of the rows of X in the fitted components."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return to_numpy(coefficients(X, self.components_.T))

    def inverse_transform(self, X: Any) -> np.ndarray:
        """The data that coefficients X stand for, X @ components_."""
        check_is_fitted(self)
        return np.asarray(X) @ self.components_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
