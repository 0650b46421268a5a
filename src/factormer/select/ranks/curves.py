"""Curves over ranks: everything that the network sees, a row of features for each rank.

No feature depends on where a range of ranks begins or ends, so that any range will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Dense, Sparse
from factormer.select.ranks.fits import N_STARTS, Fits, Row, fitted, rows
from factormer.select.ranks.noise import Noise, adapted, noise_of
from factormer.select.ranks.spectrum import Spectrum, found_again, spectrum
from factormer.select.ranks.view import View, balanced, view_of

POWERS = (0, 1, 2)  # of the entries, that the variance of the noise is taken to be
N_SPECTRAL = 8  # features from each spectrum: for each power, and for the noise that V has
N_FITTED = 15  # features from fits
FITTED = slice((len(POWERS) + 1) * N_SPECTRAL, (len(POWERS) + 1) * N_SPECTRAL + N_FITTED)
N_FEATURES = FITTED.stop + 1 + 10
_LEAST, _MOST = -12.0, 12.0


class Curves(NamedTuple):
    """Features for all ranks from the first to the last, and what they were computed from."""

    ranks: range
    features: Float[Tensor, "k f"]
    spectra: tuple[Spectrum, ...]  # by POWERS, and for the noise that V has
    noise: Noise
    fits: Fits
    rows: dict[int, Row]
    view: View  # of what was fitted


def curves(
    V: Dense | Sparse,
    ranks: Sequence[int],
    *,
    counts: bool = False,
    fit_ranks: Sequence[int] | None = None,
    n_starts: int = N_STARTS,
    seed: int = 0,
) -> Curves:
    """The curves of V for ranks up to min(m, n); V must not be zero.

    With `counts`, what is fitted is V balanced for the noise of counts: its least squares are those
    of Pearson residuals, which stand for the Kullback–Leibler divergence. `fit_ranks` are the ranks
    to fit, all of `ranks` if they are not given.
    """
    rng = torch.Generator().manual_seed(seed)
    view = view_of(V, rng)
    asked = range(min(ranks), max(ranks) + 1)
    t = min(asked[-1] + 1, *view.shape)
    versions = [balanced(view, power) for power in POWERS]
    spectra = [spectrum(version, t, rng) for version in versions]
    noise = noise_of(view, spectra[1])
    own = adapted(view, noise)
    spectra.append(spectrum(own, t, rng))
    again = found_again(own.block, t, rng)
    fit = versions[1 if counts else 0]
    to_fit = [rank for rank in (ranks if fit_ranks is None else fit_ranks) if rank <= t]
    fits, found = Fits({}, {}), {}
    if to_fit:
        fits = fitted(fit, to_fit, n_starts=n_starts, seed=seed, rng=rng)
        found = rows(fit, fits, rng)
    features = torch.cat(
        [
            *(_spectral(s, asked) for s in spectra),
            _from_fits(found, spectra[1 if counts else 0], asked, fit.total),
            again[[min(rank, t) - 1 for rank in asked], None],
            _context(asked, view, noise, counts),
        ],
        1,
    )
    return Curves(asked, features.float(), tuple(spectra), noise, fits, found, fit)


def _spectral(s: Spectrum, ranks: range) -> Float[Tensor, "k f"]:
    """Rank k by its own singular value, the next, and what is left beyond it."""
    t = len(s.values)
    k = torch.tensor([min(rank, t) for rank in ranks])
    own, beyond = k - 1, k.clamp(max=t - 1)
    best = s.held.min()
    columns = [
        (s.values[own] / s.noise[own]).log(),
        (s.values[own] / s.edge[own]).log(),
        (s.values[own] / s.edge[beyond]).log(),
        (s.values[own] / s.values[beyond]).log(),
        0.5 * (s.tail[beyond] / s.tail[0]).log(),
        0.5 * (s.held[beyond] / best).log(),
        0.5 * (s.held[beyond] / s.held[own]).log() * 5,
        s.peaked[own].log(),
    ]
    return torch.stack(columns, 1).clamp(_LEAST, _MOST)


def _from_fits(
    found: dict[int, Row], s: Spectrum, ranks: range, total: float
) -> Float[Tensor, "k f"]:
    """Rank by rank; zeros, and a last column of 0, where nothing was fitted."""
    t = len(s.tail)
    out = torch.zeros(len(ranks), N_FITTED, dtype=torch.float64)
    for place, rank in enumerate(ranks):
        if rank not in found:
            continue
        row = found[rank]
        tail = float(s.tail[min(rank, t - 1)])
        values = [
            0.5 * _log(row.error / total),
            0.5 * _log(row.error / tail),
            _log(row.left),
            _log(row.left_scaled),
            *row.stability,
            *row.overlap,
            *(_log(share) for share in row.share),
            _log(row.spread),
            row.kept[1],
            1.0,
        ]
        out[place] = torch.tensor(values, dtype=torch.float64)
    return out.clamp(_LEAST, _MOST)


def _context(ranks: range, view: View, noise: Noise, counts: bool) -> Float[Tensor, "k f"]:
    """Return the context of a curve: the size of V, and how free a rank is to fit it."""
    (m, n), k = view.shape, torch.tensor(list(ranks), dtype=torch.float64)
    ones = torch.ones_like(k)
    columns = [
        k / min(m, n),
        k * (m + n - k) / (m * n),
        ones * torch.log(torch.tensor(float(m * n))) / 8,
        ones * abs(float(torch.log(torch.tensor(m / n)))),
        ones * float((view.block == 0).double().mean()),  # zeros of the data, exact
        (k.log() / 4),
        ones * float(counts),
        *(ones * 0.5 * _log(part) for part in noise[:3]),
    ]
    return torch.stack(columns, 1)


def _log(value: float) -> float:
    return float(torch.log(torch.tensor(max(value, 1e-12), dtype=torch.float64)))
