"""Warnings that point at the line of whoever called the package."""

from __future__ import annotations

import sys
import warnings

# Whose frames may lie between us and the caller: pipelines and wrappers of methods.
_BETWEEN = {"factormer", "sklearn", "torch", "contextlib", "jaxtyping"}


def warn(text: str, kind: type[Warning]) -> None:
    """Warn of what the nearest frame has led to that belongs neither to us nor to scikit-learn."""
    frame, level = sys._getframe(), 1
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, kind, stacklevel=level)
