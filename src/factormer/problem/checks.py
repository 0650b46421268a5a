"""Errors for problems that cannot be solved."""

from __future__ import annotations

from factormer.data import Blocks, Dense, Matrix, Observed, Sparse
from factormer.problem.loss import Loss
from factormer.problem.problem import Problem
from factormer.sentence import Sentence


def checked(problem: Problem) -> Problem:
    """Return the problem, or raise if V has zeros at a pole of its loss or Fixed does not fit."""
    check_zeros(problem.V, problem.loss)
    m, n = problem.V.shape[-2:]
    for name, on, size in (("W", problem.on_w, m), ("H", problem.on_h, n)):
        if on.fixed is None:
            continue
        found, places = len(on.fixed.columns), len(on.fixed.at)
        if (found, places) != (size, problem.rank):
            raise ValueError(
                f"Fixed columns of {name} have {found} entries, in {places} places; here {name} is "
                f"{size}×{problem.rank}"
            )
    return problem


def check_zeros(V: Matrix, loss: Loss) -> None:
    """Refuse zeros in V if the loss has a pole there."""
    if not loss.has_pole or isinstance(V, Blocks):  # which do not serve such a loss
        return
    if isinstance(V, Observed):
        data = V.V
        values = data.entries if isinstance(data, Dense) else data.by_rows.values
        zeros = int(((values == 0) & V.known).sum())
    elif isinstance(V, Sparse):
        zeros = V.shape[0] * V.shape[1] - int((V.by_rows.values > 0).sum())
    else:
        zeros = int((V.entries == 0).sum())  # pyright: ignore[reportAttributeAccessIssue]
    if zeros:
        raise ValueError(
            Sentence(
                "{loss} is {given} and V has {zeros} zeros, at which it is infinite: add a small "
                "constant to V, leave zeros out ({missing=zeros}), or choose 'kullback-leibler'",
                given=loss,
                zeros=zeros,
            )
        )
