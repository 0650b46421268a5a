"""Warnings that point at the line that called the package."""

from __future__ import annotations

import sys
import warnings

# Packages with frames between ours and the caller's: pipelines, searches, and wrappers of methods.
_BETWEEN = {"factormer", "sklearn", "torch", "contextlib", "jaxtyping", "joblib"}


def warn(text: str, kind: type[Warning]) -> None:
    """Warn, pointing at the nearest frame outside of this package and scikit-learn."""
    frame, level = sys._getframe(), 1
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, kind, stacklevel=level)
