"""select_loss(): the loss that describes the noise of V."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from factormer.data import draws, n_entries
from factormer.data.keywords import as_seed, check_limits
from factormer.data.observations import observe
from factormer.functions import factorize
from factormer.problem.losses import Beta
from factormer.run.result import Result, Status
from factormer.select.holdout import Speckled
from factormer.select.noise import Law, Levels, law_of, levels_of
from factormer.select.part import part_of
from factormer.select.pictures import axes_of
from factormer.sentence import Sentence

_LEAST = 200  # hidden entries below which nothing is said
_ENOUGH = 15_000  # hidden entries after which no further fold is fitted
_PARTS = 5
_RANKS = (1, 2, 3, 5, 8, 12, 18)
_KULLBACK = Beta(1.0)  # between the others: its fit serves whatever the noise
_STEPS = 25  # iterations, after which hidden entries are predicted about as well as they will be
_WIDE = 1.5  # ratio of the largest mean to the least below which they are too much alike
_SURE = 0.3  # standard error of the power up to which it says something
# Powers that part the kinds of noise: `make bench NAME=loss`, on other seeds.
_GAUSSIAN, _POISSON, _POSITIVE, _COUNTS = 0.75, 1.22, 1.5, 1.9
_EXACT = 1e-4  # error of hidden entries, relative to their mean, below which there is no noise

LOSSES: dict[str, str | float] = {
    "gaussian": "frobenius",
    "poisson": "kullback-leibler",
    "overdispersed": 0.5,
    "multiplicative": "itakura-saito",
}
_REASONS = {
    "gaussian": "hardly grows with the mean{}: noise of about the same size everywhere, which the "
    "squared error describes",
    "poisson": "grows like the mean{}, as that of counts does: Kullback–Leibler describes it",
    "overdispersed": "grows faster than the mean{}, as that of overdispersed counts does: β = 0.5, "
    "between Kullback–Leibler (β = 1) and Itakura–Saito (β = 0), takes zeros and gives large "
    "entries less weight",
    "multiplicative": "grows like the square of the mean{}: noise in proportion to the entry, "
    "which Itakura–Saito describes",
}


@dataclass(frozen=True, eq=False, repr=False)
class LossChoice:
    """A loss, and why.

    Attributes
    ----------
    loss : str or float
        What to pass as `loss`: "frobenius", "kullback-leibler", 0.5 or "itakura-saito".
    kind : str
        The noise: "gaussian", "poisson", "overdispersed" or "multiplicative".
    power, power_error : float
        The p in variance ∝ meanᵖ, and its standard error; NaN where there is none.
    clear : bool
        Whether the data say anything; otherwise the loss is the default.
    reason : str
        A sentence.
    mean, variance : array
        The mean of entries at several levels, and the variance of their residuals there; in the
        unit of V's mean.
    """

    loss: str | float
    kind: str
    power: float
    power_error: float
    clear: bool
    reason: str
    mean: Float[np.ndarray, " b"]
    variance: Float[np.ndarray, " b"]

    def summary(self) -> dict[str, Any]:
        """All of it but the picture, for JSON."""
        arrays = {"mean": self.mean.tolist(), "variance": self.variance.tolist()}
        return {field.name: getattr(self, field.name) for field in fields(self)} | arrays

    def plot(self, ax: Any = None) -> Any:
        """Draw variance against mean on matplotlib axes, with the laws of the kinds of noise."""
        ax = axes_of(ax)
        if len(self.mean):
            ax.loglog(self.mean, self.variance, "o", color="C0", label="hidden entries")
            ends = np.array([self.mean.min(), self.mean.max()])
            x, y = (np.exp(np.log(a).mean()) for a in (self.mean, self.variance))
            lines = {"Gaussian": 0, "Poisson": 1, "multiplicative": 2}
            for style, (name, p) in zip((":", "--", "-."), lines.items(), strict=True):
                label = f"{name}: power {p}"
                ax.loglog(ends, y * (ends / x) ** p, style, color="gray", label=label)
            if np.isfinite(self.power):
                fitted = y * (ends / x) ** self.power
                ax.loglog(ends, fitted, color="C1", label=f"fitted: power {self.power:.2f}")
            ax.legend()
        ax.set_xlabel("mean of entries, relative to that of V")
        ax.set_ylabel("variance of residuals")
        ax.set_title(f"{self.kind}: loss {self.loss}" if self.clear else f"unclear: {self.loss}")
        return ax

    def __repr__(self) -> str:
        return f"<LossChoice: {self.loss}, since {self.reason}>"


def select_loss(
    V: Any,
    *,
    mask: Any = None,
    missing: str | None = None,
    device: str | None = None,
    random_state: int | None = 0,
    time_limit: float | int | None = None,
) -> LossChoice:
    """Find the loss that describes the noise of V, by how its variance grows with the mean.

    Some entries are hidden and predicted by a fit to the others, whose rank is found in the same
    way. At several levels of the prediction, the variance of the hidden entries around it is
    compared with their mean: constant for Gaussian noise, proportional to the mean for Poisson's,
    to its square for multiplicative noise, and in between for overdispersed counts.

    Parameters
    ----------
    V : array-like, sparse matrix or tensor, (m, n)
        As in `factorize`. Of large V a part is looked at: rows and columns at random, or those with
        the largest sums where V is sparse.
    mask, missing, device
        As in `factorize`.
    random_state : int, optional
        Seed of what is hidden.
    time_limit : float, optional
        Seconds; the entries hidden by then count.

    Returns
    -------
    LossChoice
        `loss`, to pass on; `reason`, a sentence; `plot()`; `kind`, `power`, `clear`. Where the data
        cannot tell (too few, all alike, without noise) it is the squared error, and `clear` False.
    """
    check_limits(1, 0.0, time_limit)
    until = None if time_limit is None else time.perf_counter() + float(time_limit)
    seed = as_seed(random_state)
    seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
    matrix = observe(V, mask=mask, missing=missing, device=device)
    if len(matrix.shape) != 2:
        raise ValueError(f"V has shape {matrix.shape}; it must be one matrix, not a stack")
    part = part_of(matrix, seed)
    if part is None:
        return _unclear("V has no entry above 0")
    try:
        speckled = Speckled.of(part, _PARTS, draws.following(seed))
    except ValueError:
        return _unclear("V has no row and column with two known entries")
    values, mean = speckled.values.double().cpu().numpy(), part.total() / n_entries(part)
    speckled = replace(speckled, V=speckled.V.scaled(1 / mean))  # any unit will do
    if int((speckled.part >= 0).sum()) < _LEAST:
        return _unclear(f"V has {len(values)} known entries, and it takes some {_LEAST}")
    if np.ptp(values) <= _EXACT * np.abs(values).max():
        return _unclear("all entries of V are about the same")
    v, y = _predictions(speckled, until)
    if not len(v):  # without a limit, a fit always ends
        raise TimeoutError(
            Sentence(
                "{time_limit} is {given}, and no fit was done by then; allow more time",
                given=time_limit,
            )
        )
    if np.count_nonzero(v) < _LEAST:
        return _unclear(f"V has few entries above 0, and it takes some {_LEAST}")
    if np.sqrt(np.mean((v - y) ** 2)) <= _EXACT * v.mean():
        return _unclear("V is predicted almost exactly, and there is no noise to describe")
    return _chosen(levels_of(v, y), values)


def _chosen(levels: Levels, values: Float[np.ndarray, " k"]) -> LossChoice:
    """The loss for a law; whether zeros forbid one, and whether entries are counts."""
    mean = levels.mean
    if len(mean) < 3 or mean.max() < _WIDE * mean.min():
        return _unclear("the entries that can be predicted are all of about the same size", levels)
    law = law_of(levels)
    if not law.error <= _SURE:
        return _unclear("the variance of residuals follows no power of the mean", levels, law)
    has_zeros = float(values.min()) <= 0
    are_counts = bool((np.abs(values - np.round(values)) <= 1e-9 * np.abs(values)).all())
    kind = "multiplicative"
    if law.power < _GAUSSIAN:
        kind = "gaussian"
    elif law.power < _POISSON:
        kind = "poisson"
    elif has_zeros or law.power < (_COUNTS if are_counts else _POSITIVE):
        kind = "overdispersed"
    power = f" (power {law.power:.2f} ± {law.error:.2f})"
    reason = f"the variance of residuals {_REASONS[kind].format(power)}"
    return LossChoice(LOSSES[kind], kind, law.power, law.error, True, reason, *levels)


def _unclear(why: str, levels: Levels | None = None, law: Law | None = None) -> LossChoice:
    """The default, where the data cannot tell."""
    shown = Levels(np.empty(0), np.empty(0)) if levels is None else levels
    power, error = (np.nan, np.nan) if law is None else (law.power, law.error)
    reason = f"{why}: nothing can be said about its noise, and the squared error is the default"
    return LossChoice("frobenius", "gaussian", power, error, False, reason, *shown)


def _predictions(speckled: Speckled, until: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Hidden entries and their predictions, at the rank that predicts the first part best."""
    best, least, worse = None, np.inf, 0
    for rank in _RANKS:
        if best is not None and rank > min(speckled.V.shape) // 3:
            break
        result = _fit(speckled, 0, rank, until)
        if result is None:
            break
        error = speckled.error(0, result.factors, _KULLBACK)
        worse = 0 if error < least else worse + 1
        if error < least:
            best, least = result, error
        if worse == 2:
            break
    hidden, predicted = [], []
    for part in range(_PARTS if best is not None else 0):
        assert best is not None
        rank = best.factors.W.shape[1]
        result = best if part == 0 else _fit(speckled, part, rank, until)
        if result is None:
            break
        at = speckled.part == part
        hidden.append(speckled.values[at].double().cpu().numpy())
        predicted.append(speckled.predicted(part, result.factors, _KULLBACK).cpu().numpy())
        if sum(map(len, hidden)) >= _ENOUGH:
            break
    if not hidden:
        return np.empty(0), np.empty(0)
    return np.concatenate(hidden), np.concatenate(predicted)


def _fit(speckled: Speckled, part: int, rank: int, until: float | None) -> Result | None:
    """A fit without a part; None where there is no time for it."""
    left = None if until is None else until - time.perf_counter()
    if left is not None and left <= 0:
        return None
    result = factorize(
        speckled.without(part), rank, loss=_KULLBACK, max_iter=_STEPS, tol=0, time_limit=left
    )
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    return None if result.status is Status.TIME_LIMIT else result
