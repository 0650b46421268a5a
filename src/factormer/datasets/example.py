"""A generated data set: its matrix, and what it was made of."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Example(NamedTuple):
    """Generated data, and the truth: V is W Hᵀ, plus noise if there is some."""

    V: Any  # (m, n), a numpy array, or a sparse array by rows
    W: np.ndarray  # (m, r)
    H: np.ndarray  # (n, r)
    rows: np.ndarray  # m names
    columns: np.ndarray  # n names, or numbers such as wavelengths
    components: np.ndarray  # r names
