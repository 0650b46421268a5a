"""The cases, as one table: data × loss × penalties × entry × way.

A case names a matrix of `data.py`, a rank, an entry of `entries.py` and the options of the call.
Only public names of the package are used, so that the table outlives whatever lies behind them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch

from factormer.losses import Loss
from factormer.penalties import (
    L1,
    L2,
    Bounds,
    Fixed,
    Free,
    Group,
    Orthogonal,
    Penalty,
    Simplex,
    Smooth,
    Volume,
)
from tests.characterise.data import factors

ORDERED = ("nonnegative", "by share", "balanced")
FEASIBLE = ("nonnegative",)
SUMS = ("nonnegative", "rows of W sum to one")
COEFFICIENTS: dict[str, Any] = {"promises": FEASIBLE, "says": False}  # W and H without a result
EXACT = 1e-4  # errors below count as exact, of data that can be fitted exactly


@dataclass(frozen=True, eq=False)
class Case:
    """One call, made with several seeds, and what is promised of its result."""

    name: str
    data: str  # the matrix, by its name in data.py
    rank: Any
    entry: str = "factorize"
    loss: Any = "frobenius"
    on_w: tuple[Any, ...] = ()  # penalties
    on_h: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    promises: tuple[str, ...] = ORDERED
    within: float | None = 1.001  # times the frozen error; None: the error is shown, not judged
    floor: float = 1e-9  # errors below are rounding, and all alike
    rounding: float = 1e-9  # by how much what the result says of its error may differ from ours
    says: bool = True  # whether the result says its error
    seeds: int = 5
    because: str = ""  # why the bar is wider than elsewhere

    @property
    def is_squared(self) -> bool:
        """Return whether the misfit is the squared error."""
        return self.loss in ("frobenius", 2, 2.0)

    @property
    def is_plain(self) -> bool:
        """Return whether the squared error is all that is minimised."""
        return self.is_squared and not any(_costs(term) for term in (*self.on_w, *self.on_h))


def _costs(term: Any) -> bool:
    return hasattr(term, "weight")


# What users may write themselves


@dataclass(frozen=True)
class LogCosh(Loss):
    """s² log cosh((y − v)/s), the example of docs/losses.md."""

    s: float = 1.0

    def __call__(self, v, y):
        return self.s**2 * torch.cosh((y - v) / self.s).log()

    def slope(self, v, y):
        return self.s * torch.tanh((y - v) / self.s)

    def curvature(self, v, y):
        return 1 - torch.tanh((y - v) / self.s).square()

    @property
    def has_unit(self):
        return True

    def scaled(self, c):
        return LogCosh(self.s / c)

    def in_numpy(self, v: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the loss of each entry, in NumPy for the judge."""
        return self.s**2 * np.log(np.cosh((y - v) / self.s))


@dataclass(frozen=True)
class Ridge(Penalty):
    """½·weight·‖X‖² by a proximal step, as a user may write it."""

    weight: Any
    order: ClassVar[int | None] = 0
    degree: ClassVar[int] = 2

    def value(self, X):
        return self.weight / 2 * X.square().sum(dim=(-2, -1))

    def prox(self, X, t):
        return X / (1 + self.weight * t)


KNOWN = Fixed(factors(120, 80, 5)[1][:, :2], np.arange(5) < 2)
KL, IS = "kullback-leibler", "itakura-saito"
LONG = {"max_iter": 2000}


SHORT = {"max_iter": 300, "tol": 0}  # without a tolerance, so that the status is sure

CASES = [
    # Kinds of arrays, by the default call
    Case("default", "noisy", 5),
    Case("default, large", "noisy-large", 20),
    Case("default, wide", "noisy-wide", 6),
    Case("float32", "float32", 5, floor=1e-6),
    Case("by columns", "by-columns", 8),
    Case("CSR", "csr", 6),
    Case("CSC", "csc", 6),
    Case("COO, float32", "coo", 5, floor=1e-6),
    Case("DataFrame", "frame", 4),
    Case("tensor", "tensor", 4),
    Case("stack", "stack", 3),
    Case("memory map", "memmap", 4),
    Case("Dask", "dask", 4),
    Case("HDF5, Kullback–Leibler", "hdf5", 4, loss=KL),
    # Entries that are unknown, or count more
    Case("NaN", "nan", 5, options=LONG),
    Case("mask", "mask", 5, options=LONG),
    Case("ratings", "ratings", 3, options=LONG),
    Case("weights", "weights", 5, options=LONG),
    Case("weights of rows", "row-weights", 5, options=LONG),
    Case("NaN, Kullback–Leibler", "nan", 5, loss=KL, options=LONG),
    # Losses
    Case("counts", "counts", 4, loss=KL, options=LONG),
    Case("counts, large", "counts-large", 5, loss=KL, options=LONG),
    Case("counts, sparse", "counts-sparse", 4, loss=KL, options=LONG),
    Case("Itakura–Saito", "positive", 3, loss=IS, options=LONG),
    Case("β = 0.5", "positive", 3, loss=0.5, options=LONG),
    Case("β = 1.5", "counts", 4, loss=1.5, options=LONG),
    Case("own loss", "positive", 3, loss=LogCosh(0.5), options=SHORT),
    # Penalties
    Case(
        "L1 and L2", "noisy", 5, on_w=(L1(0.5),), on_h=(L2(0.5),),
        promises=FEASIBLE, options=LONG,
    ),
    Case(
        "elastic net", "noisy", 5, "NMF", promises=FEASIBLE,
        on_w=(L1(0.01 * 0.5 * 80), L2(0.01 * 0.5 * 80)),  # what scikit-learn's words mean
        on_h=(L1(0.01 * 0.5 * 120), L2(0.01 * 0.5 * 120)),
        options={"alpha_W": 0.01, "alpha_H": 0.01, "l1_ratio": 0.5, **LONG},
    ),
    Case(
        "L1, Kullback–Leibler", "counts", 4, loss=KL, on_w=(L2(0.5),), on_h=(L1(0.5),),
        promises=FEASIBLE, options=LONG,
    ),
    Case("simplex", "shares", 3, on_w=(Simplex(),), promises=SUMS, options=LONG),
    Case(
        "simplex and volume", "shares", 3, on_w=(Simplex(),), on_h=(Volume(0.05, 0.1),),
        promises=SUMS, options=LONG,
    ),
    Case(
        "smooth", "smooth", 3, on_w=(L2(1.0),), on_h=(Smooth(5.0),),
        promises=FEASIBLE, options=LONG,
    ),
    Case(
        "bounds", "noisy", 5, on_h=(Bounds(0, 1),),
        promises=(*FEASIBLE, "H at most one"), options=LONG,
    ),
    Case("free", "noisy", 3, on_w=(Free(),), promises=(), options=LONG),
    Case(
        "group", "noisy", 5, on_w=(Group(1.0),), on_h=(Group(1.0),),
        promises=FEASIBLE, options=LONG,
    ),
    Case(
        "orthogonal", "noisy", 5, on_w=(L2(0.5),), on_h=(Orthogonal(0.5),),
        promises=FEASIBLE, options=LONG,
    ),
    Case(
        "known columns", "noisy", 5, on_h=(KNOWN,),
        promises=(*FEASIBLE, "known columns stay"), options=LONG,
    ),
    Case(
        "own penalty", "noisy", 5, on_w=(Ridge(0.5),), on_h=(Ridge(0.5),),
        promises=FEASIBLE, options=LONG,
    ),
    Case(
        "symmetric", "symmetric", 4, promises=(*FEASIBLE, "W is H"),
        options={"symmetric": True, **LONG},
    ),
    # Degenerate data
    Case("exact", "exact", 6, options=LONG, floor=EXACT, rounding=1e-3),
    Case("zeros", "zeros", 3),
    Case("zeros, sparse", "zeros-sparse", 3, loss=KL),
    Case("constant", "constant", 3, floor=EXACT, rounding=1e-3),
    Case("rank 1", "rank-1", 1, floor=EXACT, rounding=1e-4),
    Case("one row", "one-row", 2, floor=EXACT, rounding=1e-4),
    Case("one column", "one-column", 1, floor=EXACT, rounding=1e-4),
    Case("rank above the shape", "small", 8, floor=EXACT, rounding=1e-4),
    Case("rank above the shape, Kullback–Leibler", "small", 8, loss=KL, floor=EXACT, rounding=1e-4),
    Case("entries of 1e-170", "tiny-scale", 3, rounding=0.0),
    Case("entries of 1e150", "huge-scale", 3),
    Case("nearly dependent", "nearly-dependent", 2, options={"tol": 1e-6, **LONG}),
    Case("rows and columns of zeros", "gaps", 4),
    # Solvers, starts and networks by name
    Case("hals", "noisy", 5, options={"solver": "hals", **LONG}),
    Case("her", "noisy", 5, options={"solver": "her", **LONG}),
    Case("ahead", "by-columns", 8, options={"solver": "ahead", **LONG}),
    Case("her-admm", "noisy", 5, options={"solver": "her-admm", **LONG}),
    Case("ao-admm", "noisy", 5, options={"solver": "ao-admm", **LONG}),
    Case("ao-admm-trace", "noisy", 5, options={"solver": "ao-admm-trace", **LONG}),
    Case(
        "mu", "noisy", 5, options={"solver": "mu", "max_iter": 1000, "tol": 0},
        within=1.005, because="It is far from converged after so many iterations.",
    ),
    Case("newton", "counts", 4, loss=KL, options={"solver": "newton", **LONG}),
    Case("mu-extrapolated", "counts", 4, loss=KL, options={"solver": "mu-extrapolated", **SHORT}),
    *(
        Case(f"init {name}", "noisy", 5, options={"init": name, **LONG})
        for name in ("random", "merged", "nndsvd", "nndsvda", "nndsvdar", "rotated")
    ),
    Case("init separable", "shares", 3, options={"init": "separable", **LONG}),
    Case("init vertices", "shares", 3, options={"init": "vertices", **LONG}),
    Case("init any-rank-init", "noisy", 5, options={"init": "any-rank-init", **LONG}),
    Case("init init-r10", "rank-10", 10, options={"init": "init-r10", **LONG}),
    Case("any-rank", "noisy", 5, options={"accelerator": "any-rank", **LONG}),
    Case("accel-r10", "rank-10", 10, options={"accelerator": "accel-r10", **LONG}),
    # Where runs end
    Case("tol=0", "noisy", 5, options=SHORT),
    Case(
        "few iterations", "by-columns", 8, options={"tol": 0, "max_iter": 3, "init": "random"},
        within=None, because="Errors after so few iterations are those of one algorithm.",
    ),
    Case("stop by decrease", "counts", 4, loss=KL, options={"stop": "sklearn", **LONG}),
    Case(
        "time limit", "noisy-large", 20, "time_limit",
        within=None, because="The clock decides how far it comes.",
    ),
    Case(
        "interrupted", "by-columns", 8, "interrupted",
        within=None, because="Errors after five iterations are those of one algorithm.",
    ),
    # Other entries
    Case("NMF", "noisy", 5, "NMF", options=LONG),
    Case(
        "NMF, sum", "noisy", 5, "NMF", options={"scale": "sum", **LONG},
        promises=("nonnegative", "by share", "H sums to one"),
    ),
    Case("transform", "noisy", 5, "transform", **COEFFICIENTS),
    Case("transform, Kullback–Leibler", "counts", 4, "transform", loss=KL, **COEFFICIENTS),
    Case("update_H=False", "noisy", 5, "update_H", **COEFFICIENTS),
    Case("warm start", "noisy", 5, "warm_start", promises=FEASIBLE, options=LONG),
    Case("custom start", "noisy", 5, "custom", promises=FEASIBLE, options=LONG),
    Case("partial_fit", "noisy", 5, "partial_fit", **COEFFICIENTS),
    Case("MiniBatchNMF", "noisy", 5, "MiniBatchNMF", **COEFFICIENTS),
    Case(
        "MiniBatchNMF, Kullback–Leibler", "counts", 4, "MiniBatchNMF", loss=KL, **COEFFICIENTS,
        within=1.01, because="It ends after 100 visits, before it has converged.",
    ),
    Case("n_init", "noisy", 5, options={"n_init": 4, **LONG}),
    Case("n_init, counts", "counts-large", 5, loss=KL, options={"n_init": 2, **LONG}),
    Case("many, list", "list", (3, 4, 6, 4), "many", options=LONG),
    Case("many, stack", "stack", 3, "many", options=LONG),
    Case("many, ranks", "counts", (2, 4), "sweep", loss=KL, options={"n_init": 3, **LONG}),
    Case("many, ranks, shared", "by-columns", (4, 8), "sweep", options={"n_init": 4, **LONG}),
    Case("many, sparse, shared", "csr", (6,), "sweep", options={"n_init": 4, **LONG}),
    Case("many, memory map", "memmap", (3, 4), "sweep", options=LONG),
    Case(
        "resample poisson", "counts", (4,), "sweep", says=False,
        options={"n_init": 3, "resample": "poisson", **LONG},
        within=1.02, because="The counts that are drawn decide, not the fit alone.",
    ),
    Case(
        "resample bootstrap", "noisy", (5,), "sweep", says=False,
        options={"n_init": 3, "resample": "bootstrap", **LONG},
        within=None, because="Rows of W are those of the data that were drawn.",
    ),
    Case("consensus", "noisy", 5, "consensus", promises=FEASIBLE),
    Case("consensus, Kullback–Leibler", "counts", 4, "consensus", loss=KL, promises=FEASIBLE),
    Case("select_rank", "ranked", None, "select_rank", seeds=2),
    Case(
        "cross_validate", "ranked", None, "cross_validate", seeds=2,
        within=1.02, because="It is the error of hidden entries, which no fit minimises.",
    ),
    Case("select_loss", "counts", None, "select_loss", seeds=2),
    Case("select_loss, Gaussian", "noisy", None, "select_loss", seeds=2),
    Case("command line", "noisy", 5, "command", options={"--max-iter": 2000}),
    Case(
        "command line, Kullback–Leibler", "counts", 4, "command", loss=KL,
        options={"--n-init": 2, "--max-iter": 2000},
    ),
    Case(
        "command line, simplex", "shares", 3, "command", on_w=(Simplex(),), promises=SUMS,
        options={"--regularize-w": "simplex", "--max-iter": 2000},
    ),
    Case(
        "command line, repeats", "noisy", 5, "command", promises=FEASIBLE, says=False, seeds=2,
        options={"--repeats": 8, "--max-iter": 2000},
    ),
    Case("digits", "digits", 5, options={"n_init": 3, **LONG}),
]  # fmt: skip

REAL = [
    Case("Yale faces", "yale", 10, options={"n_init": 4}),
    Case("Jasper Ridge", "jasper", 5, options=LONG),
    Case("mutations", "brca", 8, loss=KL, options={"n_init": 4, **LONG}),
    Case("piano", "piano", 10, loss=KL, options=LONG),
    Case("cells", "cells", 8, loss=KL, options=LONG),
    Case("news", "news", 5, options=LONG),
]
