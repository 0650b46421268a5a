"""The estimator as a function, and our starts for scikit-learn, in scikit-learn's terms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from factormer.data.warn import warn
from factormer.estimator.nmf import NMF
from factormer.functions import starting_point


def custom_start(
    X: Any,
    n_components: int,
    *,
    init: str | Path = "auto",
    device: str | None = None,
    random_state: int | None = 0,
) -> tuple[Any, Any]:
    """Our start for scikit-learn: W (n_samples, r) and H (r, n_features), for init="custom".

    In the precision of X and laid out by rows, as scikit-learn wants them:
    ``NMF(r, init="custom").fit_transform(X, W=W, H=H)``. Its solver "mu" cannot move an entry that
    is zero; "cd" can.
    """
    W, H = starting_point(X, n_components, init=init, device=device, random_state=random_state)
    if isinstance(W, np.ndarray):
        return np.ascontiguousarray(W), np.ascontiguousarray(H.T)
    return W.contiguous(), H.mT.contiguous()


def non_negative_factorization(
    X: Any,
    W: Any = None,
    H: Any = None,
    n_components: Any = "auto",
    *,
    update_H: bool = True,
    **options: Any,
) -> tuple[Any, Any, int]:
    """W, H and the number of iterations, by `NMF`; without `update_H`, only W is found.

    As scikit-learn's function of that name; `options` are parameters of `NMF`.
    """
    model = NMF(n_components, **options)
    if update_H:
        return model.fit_transform(X, W=W, H=H), model.components_, model.n_iter_
    if W is not None:
        warn(
            "When update_H=False, the provided initial W is not used.",
            RuntimeWarning,
        )
    if H is None:
        raise ValueError("update_H=False needs H, the components to find W for")
    model.set_params(init="auto", fixed_components=H, n_components=len(H), tol=0.0)
    return model.fit_transform(X), H, model.n_iter_
