"""The data of the estimator: X, and which of its entries are known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse
import torch
from sklearn.utils.validation import validate_data

from factormer.data import Blocks, Matrix, Observed, checked
from factormer.data.intake import as_matrix, as_tensor, brought, is_sparse, like
from factormer.data.observations import observe
from factormer.run.request import check_choice

MISSING = (None, "nan", "zeros")
_SPARSE = ("csr", "csc", "coo")
_FLOATS = [np.float64, np.float32]


def read(
    model: Any, X: Any, mask: Any, weights: Any, sigma: Any, *, reset: bool
) -> tuple[Any, Matrix]:
    """X as floating numbers, and the matrix it stands for."""
    given = any(part is not None for part in (mask, weights, sigma))
    X = brought(X, model.memory_limit, device=model.device)
    if isinstance(X, Blocks):
        check_width(model, X.shape[1], reset)
        if model.missing == "nan":
            raise ValueError(
                "missing is 'nan', and X is read in blocks, in which all entries must be known: "
                "leave missing out, or raise memory_limit so that X fits into memory"
            )
        weights = weights if sigma is None else sigma  # which are refused
        return X, observe(X, mask=mask, weights=weights, missing=model.missing)
    X = validated(model, X, reset=reset, with_nan=given or model.missing == "nan")
    return X, data_of(X, model.missing, mask, weights, sigma, model.device)


def validated(model: Any, X: Any, *, reset: bool, with_nan: bool = False) -> Any:
    """X as floating numbers; plain arrays and tensors are only looked at by the engine."""
    if is_tensor(X):
        if X.dim() != 2:
            raise ValueError(
                f"X has shape {tuple(X.shape)}; it must be one matrix, samples by features "
                "(factorize takes stacks of matrices)"
            )
        check_width(model, X.shape[1], reset)
        return X
    plain = type(X) is np.ndarray and X.ndim == 2 and X.dtype in _FLOATS and X.size
    if plain and (reset or not hasattr(model, "feature_names_in_")):
        check_width(model, X.shape[1], reset)
        return X
    given: Any = X
    if is_sparse(X):  # before it is converted
        given = checked(X, "X")
    finite: Any = "allow-nan" if with_nan else True
    try:
        return validate_data(
            model,
            given,
            accept_sparse=_SPARSE,
            dtype=_FLOATS,
            reset=reset,
            ensure_all_finite=finite,
        )
    except ValueError as error:
        text = next(_texts(given), None)
        if text is None and "contains NaN" in str(error):
            raise ValueError(
                f"Input X contains NaN: {_count_nan(given)} entries are missing; if they are not "
                "known, use NMF(missing='nan'), which fits the others; otherwise impute them first"
            ) from error
        if text is None:
            raise
        raise ValueError(
            f"X holds the text {text!r}; its entries must be numbers: leave out columns of text, "
            "or encode them as numbers"
        ) from error


def _count_nan(X: Any) -> int:
    """How many entries are NaN, or missing in a DataFrame."""
    if is_sparse(X):
        return int(np.isnan(X.tocoo().data).sum())
    return int(np.isnan(as_tensor(X, name="X", device=None).numpy()).sum())


def _texts(X: Any) -> Iterator[str]:
    """Yield the entries that are text, and no text of a number."""
    try:
        entries = () if is_sparse(X) else np.asarray(X, dtype=object).ravel()
    except ValueError:  # arrays of unequal shapes
        return
    for entry in entries:
        if isinstance(entry, str):
            try:
                float(entry)
            except ValueError:
                yield str(entry)


def check_width(model: Any, n_features: int, reset: bool) -> None:
    """The number of features: that of a fit, or the same as then."""
    if reset:
        vars(model).pop("feature_names_in_", None)  # of an earlier fit
        model.n_features_in_ = n_features
    elif n_features != model.n_features_in_:
        raise ValueError(
            f"X has {n_features} features, but {type(model).__name__} is expecting "
            f"{model.n_features_in_} features as input"
        )


def data_of(
    X: Any, missing: Any, mask: Any, weights: Any, sigma: Any, device: str | None
) -> Matrix:
    """The data with its weights; NaN is unknown only with missing="nan", mask or weights."""
    check_choice("missing", missing, MISSING)
    if sigma is not None:
        if weights is not None:
            raise ValueError("weights and sigma say the same thing; give one (weights = 1/sigma²)")
        weights = _precision(sigma)
    if missing is None and mask is None and weights is None:
        return as_matrix(X, device=device)
    options = {
        "mask": mask,
        "weights": weights,
        "missing": "zeros" if missing == "zeros" else None,
        "device": device,
    }
    V = observe(X, **options)
    if missing == "nan" or is_sparse(X):
        return V
    entries = as_tensor(X, name="X", device=device)
    if bool((absent := entries.isnan()).any()):
        whole = observe(torch.where(absent, 1.0, entries), **options)
        if not isinstance(whole, Observed) or float(whole.count().sum()) != _count(V):
            raise ValueError(
                "X contains NaN where mask and weights call it known; use missing='nan' if NaN "
                "is not known"
            )
    return V


def _count(V: Matrix) -> float:
    return float(V.count().sum()) if isinstance(V, Observed) else float(V.shape[0] * V.shape[1])


def _precision(sigma: Any) -> Any:
    """1/σ², entry by entry; of the stored entries, if σ is sparse."""
    if isinstance(sigma, torch.Tensor) and not is_sparse(sigma):
        values, weights = sigma, sigma.double() ** -2
    elif is_sparse(sigma) and not isinstance(sigma, torch.Tensor):
        weights = checked(sigma, "sigma").tocsr().astype(float)
        values, weights.data = weights.data, weights.data**-2.0
    else:
        values = np.asarray(checked(sigma, "sigma").toarray() if is_sparse(sigma) else sigma, float)
        with np.errstate(divide="ignore"):
            weights = values**-2.0
    if not bool((values > 0).all()):
        raise ValueError(
            "sigma has entries that are not above 0; standard deviations are positive (leave "
            "entries that are not known out with mask)"
        )
    return weights


def is_tensor(X: Any) -> bool:
    """Whether X is torch's."""
    return isinstance(X, torch.Tensor)


def returned(X: Any, F: torch.Tensor) -> Any:
    """F as an array of the kind that X is, where X is."""
    return F.to(X.device) if is_tensor(X) else like(X)(F)


def rebuilt(X: Any, components: Any) -> Any:
    """X @ components_, of the kind that X is."""
    if is_tensor(X):
        return X @ torch.as_tensor(components, dtype=X.dtype, device=X.device)
    H = components.cpu().numpy() if is_tensor(components) else components
    return checked(X, "X") @ H if scipy.sparse.issparse(X) else np.asarray(X) @ H
