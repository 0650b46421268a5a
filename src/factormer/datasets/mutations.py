"""Mutation counts of tumours that nobody had."""

from __future__ import annotations

import numpy as np

from factormer.datasets.example import Example

_CHANGES = ("C>A", "C>G", "C>T", "T>A", "T>C", "T>G")
# By process: how likely a change is in its context of two neighbours, and how common the process.
_PROCESSES = {
    "ageing": 0.9,  # C>T before G
    "APOBEC-like": 0.5,  # C>T and C>G after T
    "ultraviolet-like": 0.25,  # C>T after a pyrimidine
    "oxidative": 0.35,  # C>A, above all before A
    "flat": 0.7,  # a little of everything
}


def make_mutations(n_tumours: int = 100, *, random_state: int = 0) -> Example:
    """Draw mutation counts in 96 classes: the base that changed, and its two neighbours.

    Five processes leave their marks, each in some of the tumours. Their signatures follow simple
    rules in the manner of known ones (C>T before G for age, …): they are nobody's measurements, and
    not the catalogue of any institute. Counts are Poisson.

    Parameters
    ----------
    n_tumours : int
        Number of columns.
    random_state : int
        Seed of all that is drawn.

    Returns
    -------
    Example
        `V` (96, n_tumours) of counts; `W` signatures, of which each sums to one; `H` mutations of
        each tumour by process; `rows` classes such as ``A[C>T]G``, in their usual order.
    """
    if n_tumours < 1:
        raise ValueError(f"n_tumours is {n_tumours}; it must be 1 or more")
    rng = np.random.default_rng(random_state)
    classes = [(a, c, b) for c in _CHANGES for a in "ACGT" for b in "ACGT"]
    W = np.array([[_weight(p, *one) for p in _PROCESSES] for one in classes])
    W *= rng.gamma(4, 0.25, size=W.shape)  # no rule is followed exactly
    W /= W.sum(axis=0)
    is_active = rng.random((n_tumours, len(_PROCESSES))) < list(_PROCESSES.values())
    is_active[:, 0] = True
    H = is_active * rng.lognormal(np.log(400), 0.8, size=is_active.shape)
    V = rng.poisson(W @ H.T).astype(np.float64)
    rows = np.array([f"{a}[{c}]{b}" for a, c, b in classes])
    columns = np.array([f"tumour {i + 1}" for i in range(n_tumours)])
    return Example(V, W, H, rows, columns, np.array(list(_PROCESSES)))


def _weight(process: str, before: str, change: str, after: str) -> float:
    """How a process favours a class."""
    rules = {
        "ageing": change == "C>T" and after == "G",
        "APOBEC-like": change in ("C>T", "C>G") and before == "T" and after != "G",
        "ultraviolet-like": change == "C>T" and before in "CT" and after != "G",
        "oxidative": change == "C>A" and after in "AT",
        "flat": False,
    }
    return 1.0 if rules[process] else {"flat": 0.2, "oxidative": 0.03}.get(process, 0.01)
