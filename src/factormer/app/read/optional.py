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
        name = package.partition(".")[0]
        extra = name if name == "zarr" else "read"
        raise ImportError(
            f"reading {path} needs {name}: pip install 'factormer[{extra}]'"
        ) from error
