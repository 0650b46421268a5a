"""A hyperspectral picture of a landscape that does not exist."""

from __future__ import annotations

import numpy as np
from scipy.ndimage import gaussian_filter

from factormer.datasets.example import Example


def make_scene(size: int = 100, n_bands: int = 150, *, random_state: int = 0) -> Example:
    """Make a square picture with a spectrum of 400 to 2500 nm in each pixel, with its materials.

    Water, trees, soil and a road: a pixel is a mixture of them, and shares sum to one. Reflectances
    have noise of 0.5 % of full reflection. The spectra are smooth curves in the manner of these
    materials, not measurements.

    Parameters
    ----------
    size : int
        Pixels along each side.
    n_bands : int
        Number of bands.
    random_state : int
        Seed of the landscape and of the noise.

    Returns
    -------
    Example
        `V` (size², n_bands), a pixel per row; `W` shares, `W[:, k].reshape(size, size)` is a map;
        `H` spectra; `columns` wavelengths in nanometres.
    """
    if min(size, n_bands) < 10:
        raise ValueError(f"size is {size} and n_bands {n_bands}; both must be 10 or more")
    rng = np.random.default_rng(random_state)
    wavelengths = np.linspace(400, 2500, n_bands)
    spectra = _spectra(wavelengths)
    W, H = _shares(size, rng), np.stack(list(spectra.values()), axis=1)
    V = (W @ H.T + rng.normal(0, 0.005, (size**2, n_bands))).clip(0)
    rows = np.array([f"{i},{j}" for i in range(size) for j in range(size)])
    return Example(V, W, H, rows, wavelengths.round(1), np.array(list(spectra)))


def _spectra(x: np.ndarray) -> dict[str, np.ndarray]:
    """Reflectances by wavelength, from 0 to 1."""

    def step(at: int, width: int) -> np.ndarray:
        return 1 / (1 + np.exp(-(x - at) / width))

    def peak(at: int, width: int) -> np.ndarray:
        return np.exp(-0.5 * ((x - at) / width) ** 2)

    wet = 1 - 0.75 * peak(1450, 60) - 0.9 * peak(1940, 75)  # what water in leaves takes away
    trees = (0.04 + 0.05 * peak(550, 35) + 0.45 * step(715, 15) - 0.2 * step(1300, 150)) * wet
    soil = (0.08 + 0.4 * step(900, 300)) * (1 - 0.15 * peak(1450, 50) - 0.3 * peak(2200, 40))
    water = 0.02 + 0.07 * peak(520, 90) * (1 - step(750, 40))
    road = 0.13 + 0.07 * step(600, 150) + 0.05 * peak(1700, 300)
    return {"water": water, "trees": trees, "soil": soil, "road": road}


def _shares(size: int, rng: np.random.Generator) -> np.ndarray:
    """A river, a road, and woods on soil, blurred where they meet; each row sums to one."""
    y, x = np.mgrid[:size, :size] / size
    river = np.exp(-(((x - 0.3 - 0.12 * np.sin(5 * y)) / 0.05) ** 2))
    road = np.exp(-(((y - 0.75 + 0.25 * x) / 0.015) ** 2))
    woods = gaussian_filter(rng.normal(size=(size, size)), size / 14)
    woods = 1 / (1 + np.exp(-4 * woods / woods.std()))
    road = road * (1 - 0.9 * river)
    land = (1 - river) * (1 - road)
    maps = np.stack([river, land * woods, land * (1 - woods), road], axis=-1)
    maps = gaussian_filter(maps, (size / 120, size / 120, 0)) ** 1.3
    shares = maps.reshape(size**2, 4)
    return shares / shares.sum(axis=1, keepdims=True)
