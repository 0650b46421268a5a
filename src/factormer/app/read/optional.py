"""Packages that only some readers need."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any


def require(package: str, path: Path) -> Any:
    """The package, or a sentence that says how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(
            f"reading {path} needs {package.partition('.')[0]}: pip install 'factormer[read]'"
        ) from error
