"""patch_sklearn(): programs that import NMF from scikit-learn get ours, with its parameters."""

from __future__ import annotations

import copy
import logging
from typing import Any

import sklearn.decomposition
from sklearn.decomposition import _nmf

from factormer.estimator import functional, nmf
from factormer.estimator.minibatch import MiniBatchNMF
from factormer.estimator.options import loss_of

_PLACES: tuple[Any, ...] = (sklearn.decomposition, _nmf)
_log = logging.getLogger(__name__)
_theirs: dict[str, Any] = {}  # by name, while they are patched
_said: set[str] = set()


class NMF(nmf.NMF):
    """`factormer.NMF` with the parameters and defaults of scikit-learn's.

    solver="cd" and "mu" ask for the loss, which the best solver serves, and init=None for the best
    start; other starts are obeyed.
    """

    def __init__(
        self,
        n_components: Any = "auto",
        *,
        init: Any = None,
        solver: str = "cd",
        beta_loss: Any = "frobenius",
        tol: float | int = 1e-4,
        max_iter: int = 200,
        random_state: Any = None,
        alpha_W: Any = 0.0,
        alpha_H: Any = "same",
        l1_ratio: Any = 0.0,
        verbose: int = 0,
        shuffle: bool = False,
    ):
        super().__init__(
            n_components,
            init=init,
            solver=solver,
            beta_loss=beta_loss,
            tol=tol,
            max_iter=max_iter,
            random_state=random_state,
            alpha_W=alpha_W,
            alpha_H=alpha_H,
            l1_ratio=l1_ratio,
            verbose=verbose,
            shuffle=shuffle,
        )

    def _options(self) -> Any:
        return chosen(self)


class StrictNMF(NMF):
    """The same with the solver and the start that are asked for."""

    def _options(self) -> Any:
        return self


def chosen(options: Any) -> Any:
    """The options with the best solver for the loss, and the best start unless one is named."""
    loss_of(options.beta_loss, options.solver)  # which refuses what scikit-learn does
    best = copy.copy(options)
    if options.solver in ("cd", "mu"):
        _say(options.solver)
        best.solver = "auto"
    if options.init is None:
        best.init = "auto"
    return best


def _say(solver: str) -> None:
    """Log, once for each, what a solver is taken for."""
    if solver not in _said:
        _said.add(solver)
        _log.warning(
            "solver=%r asks factormer for the loss alone, and the best solver serves it; "
            "patch_sklearn(strict=True) obeys",
            solver,
        )


def non_negative_factorization(
    X: Any,
    W: Any = None,
    H: Any = None,
    n_components: Any = "auto",
    *,
    init: Any = None,
    update_H: bool = True,
    solver: str = "cd",
    **options: Any,
) -> tuple[Any, Any, int]:
    """W, H and the number of iterations, with scikit-learn's parameters and defaults."""
    loss_of(options.get("beta_loss", "frobenius"), solver)
    if solver in ("cd", "mu"):
        _say(solver)
        solver = "auto"
    options |= {"init": "auto" if init is None else init, "solver": solver}
    return functional.non_negative_factorization(
        X, W, H, n_components, update_H=update_H, **options
    )


def _strict_factorization(
    X: Any, W: Any = None, H: Any = None, n_components: Any = "auto", **options: Any
) -> tuple[Any, Any, int]:
    options = {"init": None, "solver": "cd"} | options
    return functional.non_negative_factorization(X, W, H, n_components, **options)


def patch_sklearn(*, strict: bool = False) -> None:
    """Let programs that import from scikit-learn get our NMF, until `unpatch_sklearn`.

    `NMF`, `MiniBatchNMF` and `non_negative_factorization` of `sklearn.decomposition` become ours,
    with scikit-learn's parameters, attributes and warnings. Call it before the program imports
    them: names that were imported earlier stay scikit-learn's. `python -m factormer patch SCRIPT`
    does it for a program as it is.

    Parameters
    ----------
    strict : bool
        Whether solver="cd" and "mu" and init=None mean just these, as in scikit-learn. By default
        they ask for the loss, which the best solver serves from the best start.
    """
    unpatch_sklearn()
    ours = {
        "NMF": StrictNMF if strict else NMF,
        "MiniBatchNMF": MiniBatchNMF,
        "non_negative_factorization": (
            _strict_factorization if strict else non_negative_factorization
        ),
    }
    for name, replacement in ours.items():
        _theirs[name] = getattr(sklearn.decomposition, name)
        for place in _PLACES:
            setattr(place, name, replacement)


def unpatch_sklearn() -> None:
    """Give scikit-learn its own functions back; nothing happens where it was not patched."""
    for name, original in _theirs.items():
        for place in _PLACES:
            setattr(place, name, original)
    _theirs.clear()
