"""patch_sklearn(): programs that import NMF from scikit-learn get ours, with its parameters."""

from __future__ import annotations

import copy
import logging
from dataclasses import dataclass, field
from typing import Any

import sklearn.decomposition

from factormer.estimator import functional, minibatch, nmf
from factormer.estimator.options import loss_of

_log = logging.getLogger(__name__)
_said: set[str] = set()


@dataclass
class _Patched:
    """The names of scikit-learn that are patched, as they were; and whether options are obeyed."""

    theirs: dict[str, Any] = field(default_factory=dict)
    strict: bool = False


_patched = _Patched()


class NMF(nmf.NMF):
    """`factormer.NMF` with the parameters and defaults of scikit-learn's.

    solver="cd" and "mu" ask for the loss, which the best solver serves, and init=None for the best
    start, unless `patch_sklearn` was strict; other starts are obeyed.
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
        return self if _patched.strict else chosen(self)


class MiniBatchNMF(minibatch.MiniBatchNMF):
    """`factormer.MiniBatchNMF` with the defaults of scikit-learn's."""

    def __init__(
        self,
        n_components: Any = "auto",
        *,
        init: Any = None,
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
        super().__init__(
            n_components,
            init=init,
            batch_size=batch_size,
            beta_loss=beta_loss,
            tol=tol,
            max_no_improvement=max_no_improvement,
            max_iter=max_iter,
            alpha_W=alpha_W,
            alpha_H=alpha_H,
            l1_ratio=l1_ratio,
            forget_factor=forget_factor,
            fresh_restarts=fresh_restarts,
            fresh_restarts_max_iter=fresh_restarts_max_iter,
            transform_max_iter=transform_max_iter,
            random_state=random_state,
            verbose=verbose,
        )


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
    asked = NMF(n_components, init=init, solver=solver, **options)._options()
    return functional.non_negative_factorization(
        X, W, H, n_components, update_H=update_H, **options, init=asked.init, solver=asked.solver
    )


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
    _patched.strict = strict
    for ours in (NMF, MiniBatchNMF, non_negative_factorization):
        name = ours.__name__
        _patched.theirs[name] = getattr(sklearn.decomposition, name)
        setattr(sklearn.decomposition, name, ours)


def unpatch_sklearn() -> None:
    """Give scikit-learn its own functions back; nothing happens where it was not patched."""
    for name, original in _patched.theirs.items():
        setattr(sklearn.decomposition, name, original)
    _patched.theirs.clear()
    _patched.strict = False
