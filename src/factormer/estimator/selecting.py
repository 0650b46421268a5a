"""n_components="select": the rank is chosen before the fit."""

from __future__ import annotations

from typing import Any

from factormer.data import Matrix
from factormer.data.warn import warn
from factormer.estimator.options import loss_of
from factormer.select.ranks.choice import Choice
from factormer.select.ranks.select import select_rank


def selected(options: Any, V: Matrix, seed: int) -> Choice | None:
    """The choice of a rank for V, with a warning where it is not clear; None if none is asked."""
    asked: Any = options.n_components
    if not (isinstance(asked, str) and asked == "select"):
        return None
    is_custom = isinstance(options.init, str) and options.init == "custom"
    if is_custom or options.fixed_components is not None:
        raise ValueError(
            "n_components is 'select', and init='custom' and fixed_components have a number of "
            "components of their own; pass it as n_components"
        )
    choice = select_rank(V, loss=loss_of(options.beta_loss, options.solver), random_state=seed)
    if not choice.clear:
        warn(f"The number of components is not clear. {choice.reason}", UserWarning)
    return choice
