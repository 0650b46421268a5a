"""The matrices that benchmarks run on, each of mean 1."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.datasets import load_digits


@dataclass(frozen=True)
class Case:
    """A matrix by name, with the rank to factorise it to; it is made when it is loaded."""

    name: str
    rank: int
    make: Callable[[], Any]

    def load(self) -> Any:
        """The matrix in float64, divided by its mean; an array, or CSR where it is sparse."""
        V = self.make()
        return V * (1 / V.mean())


def exponential(
    m: int, n: int, r: int, *, seed: int, noise: float = 0.0, density: float = 1.0
) -> np.ndarray:
    """W Hᵀ of exponential factors (eq. 18), thinned out to a density, with noise cut off at 0."""
    rng = np.random.default_rng(seed)
    W, H = (rng.exponential(r**-0.5, (rows, r)) for rows in (m, n))
    if density < 1:
        W, H = (F * (rng.random(F.shape) < density) for F in (W, H))
    V = W @ H.T
    return np.maximum(V + noise * rng.standard_normal(V.shape), 0) if noise else V


def topics(m: int, n: int, r: int, *, seed: int, words: float) -> scipy.sparse.csr_matrix:
    """Counts of n words in m documents of so many words each, on mixtures of r topics."""
    rng = np.random.default_rng(seed)
    words_of = rng.dirichlet(np.full(n, 0.05), r)  # (r, n)
    mixture = rng.dirichlet(np.full(r, 0.1), m)  # (m, r)
    return scipy.sparse.csr_matrix(rng.poisson(words * mixture @ words_of).astype(float))


def documents(m: int, n: int, r: int, *, seed: int, words: float) -> scipy.sparse.csr_matrix:
    """Counts of n words in m documents of about so many words, each word drawn from a topic."""
    rng = np.random.default_rng(seed)
    words_of = rng.dirichlet(np.full(n, 0.02), r)  # (r, n)
    mixture = rng.dirichlet(np.full(r, 0.1), m)  # (m, r)
    lengths = rng.poisson(words, m) + 5
    columns: list[np.ndarray] = []
    for i in range(m):
        drawn = rng.choice(r, lengths[i], p=mixture[i])
        for topic, count in zip(*np.unique(drawn, return_counts=True), strict=True):
            columns.append(rng.choice(n, count, p=words_of[topic]))
    rows = np.repeat(np.arange(m), lengths)
    return scipy.sparse.csr_matrix((np.ones(len(rows)), (rows, np.concatenate(columns))), (m, n))


def resampled(path: Path, n: int, *, seed: int) -> np.ndarray:
    """Poisson counts in n columns, whose means are columns of V drawn with replacement."""
    V, rng = _dense(path), np.random.default_rng(seed)
    return rng.poisson(V[:, rng.integers(V.shape[1], size=n)]).astype(np.float64)


def spectrogram(m: int, n: int, *, seed: int) -> np.ndarray:
    """Magnitudes of m frequencies in n frames of random notes with overtones, beats and noise."""
    rng, rate, hop = np.random.default_rng(seed), 22050, (m - 1) // 2
    size = hop * (n + 3)
    sound = 1e-3 * rng.standard_normal(size)
    notes, now = 110 * 2 ** (rng.choice(40, 14, replace=False) / 12), 0.0
    while now * rate < size:
        for pitch in rng.choice(notes, rng.integers(1, 4)):
            first, decay = int(now * rate), rng.uniform(0.2, 1.0)
            t = np.arange(min(size - first, int(3 * decay * rate))) / rate
            for h in range(1, min(9, int(rate / 2 / pitch))):
                tone = np.exp(-t / decay * (1 + 0.3 * h)) * np.sin(2 * np.pi * pitch * h * t) / h
                sound[first : first + len(t)] += rng.uniform(0.3, 1) * tone
        now += rng.choice([0.125, 0.25, 0.5])
    for first in range(0, size - 2000, rate // 2):
        sound[first : first + 2000] += rng.standard_normal(2000) * np.exp(-np.arange(2000) / 300)
    frames = np.lib.stride_tricks.sliding_window_view(sound, 2 * (m - 1))[::hop][:n]
    return np.abs(np.fft.rfft(frames * np.hanning(2 * (m - 1)))).T


def pictures(m: int, side: int, parts: int, *, seed: int) -> np.ndarray:
    """Pictures of side² pixels, m of them, of oval spots that are each in about one of eight."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side] / side
    spots = []
    for _ in range(parts):
        (a, b), (width, height), turn = rng.random(2), rng.uniform(0.03, 0.13, 2), rng.random()
        c, s = np.cos(np.pi * turn), np.sin(np.pi * turn)
        u, v = c * (y - a) + s * (x - b), c * (x - b) - s * (y - a)
        spots.append(np.exp(-((u / width) ** 2) - (v / height) ** 2).ravel())
    shown = rng.exponential(size=(m, parts)) * (rng.random((m, parts)) < 0.12)
    V = shown @ np.array(spots) * rng.uniform(0.8, 1.2, (m, side * side))
    return V + 0.02 * np.abs(rng.standard_normal(V.shape))


def spectra(m: int, n: int, materials: int, *, seed: int) -> np.ndarray:
    """Smooth spectra of n bands at m places, each a mixture of a few materials, in uneven light."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 1, n)
    curves = np.full((materials, n), 0.1)
    for _ in range(6):
        centre, width, height = (rng.random((materials, 1)) for _ in range(3))
        curves += height * np.exp(-0.5 * ((t - centre) / (0.02 + 0.15 * width)) ** 2)
    mixture = rng.dirichlet(np.full(materials, 0.08), m)
    V = rng.gamma(8, 1 / 8, (m, 1)) * (mixture @ curves)
    return np.maximum(V + 0.01 * rng.standard_normal((m, n)), 0)


def smooth(m: int, n: int, r: int, *, seed: int) -> np.ndarray:
    """Smooth curves in the columns, and noise in proportion."""
    rng = np.random.default_rng(seed)
    V = np.abs(np.cumsum(rng.standard_normal((m, r)), axis=0)) @ rng.random((r, n))
    return V * rng.uniform(0.9, 1.1, V.shape)


def mixture(m: int, n: int, r: int, *, seed: int) -> np.ndarray:
    """Exponential factors, and noise in proportion."""
    rng = np.random.default_rng(seed)
    V = rng.exponential(size=(m, r)) @ rng.exponential(size=(r, n))
    return V * rng.uniform(0.8, 1.2, V.shape)


def counts(m: int, n: int, r: int, *, seed: int) -> np.ndarray:
    """Poisson counts around exponential factors."""
    rng = np.random.default_rng(seed)
    return rng.poisson(rng.exponential(size=(m, r)) @ rng.exponential(size=(r, n)) / 4.0) + 0.0


BUILT_IN = (
    Case("exponential", 10, partial(exponential, 120, 150, 10, seed=2)),
    Case("noisy", 20, partial(exponential, 1000, 500, 20, seed=3, noise=0.01)),
    Case(
        "sparse-factors", 20, partial(exponential, 2000, 1000, 20, seed=4, noise=0.05, density=0.3)
    ),
    Case("many-parts", 60, partial(exponential, 1200, 800, 60, seed=8, noise=0.02, density=0.15)),
    Case("pictures", 50, partial(pictures, 2000, 28, 80, seed=11)),
    Case("spectra", 30, partial(spectra, 4000, 200, 40, seed=12)),
    Case("topics", 10, partial(topics, 3000, 2000, 10, seed=5, words=26)),
    Case("spectrogram", 25, partial(spectrogram, 513, 493, seed=7)),
    Case("digits", 16, lambda: load_digits(return_X_y=True)[0]),
    Case("race-small", 10, partial(exponential, 25, 25, 10, seed=1)),
    Case("race-sparse", 16, partial(exponential, 800, 600, 16, seed=6, noise=0.05, density=0.3)),
    Case("race-big", 20, partial(exponential, 5000, 2000, 20, seed=4, noise=0.01)),
    Case("race-topics", 20, partial(documents, 12000, 8000, 20, seed=5, words=90)),
)


# Matrices that no threshold was set by.
_parts = partial(exponential, noise=0.05, density=0.2)
UNSEEN = (
    Case("pictures-a", 8, partial(pictures, 1500, 32, 60, seed=901)),
    Case("pictures-b", 20, partial(pictures, 3000, 24, 90, seed=902)),
    Case("pictures-c", 40, partial(pictures, 1200, 40, 70, seed=903)),
    Case("pictures-d", 60, partial(pictures, 2500, 30, 110, seed=904)),
    Case("pictures-e", 90, partial(pictures, 1800, 36, 120, seed=905)),
    Case("parts-a", 10, partial(_parts, 900, 1400, 10, seed=906)),
    Case("parts-b", 35, partial(_parts, 1600, 1100, 45, seed=907)),
    Case("parts-c", 70, partial(_parts, 1300, 1500, 70, seed=908)),
    Case("spectra-a", 12, partial(spectra, 6000, 180, 15, seed=909)),
    Case("spectra-b", 36, partial(spectra, 3000, 320, 50, seed=910)),
    Case("spectra-c", 45, partial(spectra, 2500, 400, 60, seed=911)),
)
# Small ones of many kinds, to ask how near calls come to the best of many starts.
GENERATED = (
    *(
        Case(f"exact-{k}", 5, partial(exponential, 15, 10, 5, seed=k, density=0.4))
        for k in range(4)
    ),
    *(Case(f"exact-30-{k}", 8, partial(exponential, 30, 40, 8, seed=k)) for k in range(2)),
    Case("parts", 12, partial(exponential, 200, 150, 12, seed=6, noise=0.05, density=0.3)),
    Case("uniform", 5, lambda: np.random.default_rng(0).random((100, 80))),
    Case("smooth", 8, partial(smooth, 400, 300, 8, seed=0)),
    Case("mixture", 10, partial(mixture, 1000, 500, 12, seed=0)),
    Case("counts", 8, partial(counts, 600, 96, 12, seed=0)),
)
# The race: case and rank, with the file where the matrix is a real one. Rows of W are pixels.
RACE = (
    *("race-small:10", "exponential:10", "noisy:20", "race-sparse:16", "race-big:20"),
    *("race-topics:20", "yale_faces_64-T:10", "jasper_ridge-T:10", "digits:16", "indian_pines:12"),
    *("extended_yaleb_32:20", "mnist_t10k:20", "audio_piano_spectrogram:15", "brca_sbs96:8"),
    *("all_aml_microarray:6", "pbmc68k_reduced_log:15", "reuters21578:20", "bbc_news:10"),
)


# Cases whose optimum is known from many starts, of which default calls are to come near.
OPTIMUM = (
    *(f"{case.name}:{case.rank}" for case in GENERATED),
    *("exponential:10", "noisy:20", "topics:10", "digits:10", "digits:16", "digits:30"),
    *("brca_sbs96:5", "brca_sbs96:12", "brca_sbs96:20", "jasper_ridge:4", "jasper_ridge:10"),
    *("audio_piano_spectrogram:10", "audio_piano_spectrogram:30", "indian_pines:10"),
    *("all_aml_microarray:5", "all_aml_microarray:10", "yale_faces_64:10", "yale_faces_64:30"),
    *("extended_yaleb_32:20", "mnist_t10k:20", "mnist_t10k:40", "bbc_news:10", "bbc_news:20"),
    *("pbmc_sctransform_counts:10", "pbmc_sctransform_counts:20"),
    *("pbmc68k_reduced_log:10", "pbmc68k_reduced_log:20"),
)


# Where iterations are many and dear; those on disk only where FACTORMER_DATA has them.
HIGH_RANKS = (
    *("many-parts:60", "pictures:40", "pictures:100", "spectra:30"),
    *("mnist_t10k:40", "mnist_t10k:100", "extended_yaleb_32:40", "extended_yaleb_32:60"),
    *("yale_faces_64:40", "yale_faces_64:60", "indian_pines:30", "bbc_news:50", "reuters21578:60"),
)


def on_disk() -> list[Case]:
    """The *.npz of the folder that FACTORMER_DATA names: an array "V", or scipy's sparse format."""
    folder = os.environ.get("FACTORMER_DATA")
    cases = []
    for path in sorted(Path(folder).expanduser().glob("*.npz")) if folder else ():
        with np.load(path) as file:
            names = file.files
        if "V" in names:
            cases.append(Case(path.stem, 10, partial(_dense, path)))
            cases.append(Case(f"{path.stem}-T", 10, partial(_turned, path)))
        elif "format" in names:
            cases.append(Case(path.stem, 10, partial(_sparse, path)))
        if path.stem == "brca_sbs96":
            cases.append(Case("brca_resampled", 8, partial(resampled, path, 2778, seed=6)))
    return cases


def known() -> dict[str, Case]:
    """Return every case by its name, those on disk as far as they are there."""
    return {case.name: case for case in [*BUILT_IN, *UNSEEN, *GENERATED, *on_disk()]}


def find(names: Iterable[str] | None = None, *, absent: bool = True) -> list[Case]:
    """Return the cases of those names, "name" or "name:rank"; the usual ones where none is named.

    "high-ranks" stands for those of `HIGH_RANKS` that there are, and "race" for those of `RACE`.
    Names without a case are an error, or are left out if `absent` is false.
    """
    every = known()
    sets = {"high-ranks": HIGH_RANKS, "race": RACE}
    usual = [case.name for case in (*BUILT_IN, *on_disk())]
    usual = [name for name in usual if not name.startswith("race-") and not name.endswith("-T")]
    found = []
    for text in names or usual:
        for one in sets.get(text, (text,)):
            name, _, rank = one.partition(":")
            if name in every:
                found.append(replace(every[name], rank=int(rank)) if rank else every[name])
            elif absent and text not in sets:
                raise SystemExit(f"there is no case {name!r}; choose of {', '.join(every)}")
    return found


def _dense(path: Path) -> np.ndarray:
    with np.load(path) as file:
        return file["V"].astype(np.float64)


def _turned(path: Path) -> np.ndarray:
    return np.ascontiguousarray(_dense(path).T)


def _sparse(path: Path) -> Any:
    return scipy.sparse.csr_matrix(scipy.sparse.load_npz(path), dtype=np.float64)
