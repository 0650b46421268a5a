"""The compiled core that is tested: the package's, or the one in the folder FACTORMER_CORE."""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

import pytest

import factormer

NAME = "factormer._core"
ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "core"
OBJECTS = ROOT / "build" / "core" / "CMakeFiles"  # where `make` compiles the package's


def load() -> ModuleType:
    """Import the module; skip the tests where there is none.

    `factormer.kernels` would import torch, which tests under sanitizers do without.
    """
    if NAME not in sys.modules:
        places = [os.environ["FACTORMER_CORE"]] if "FACTORMER_CORE" in os.environ else None
        spec = PathFinder.find_spec(NAME, places or list(factormer.__path__))
        if spec is None or spec.loader is None:
            pytest.skip("the core was not compiled: make core", allow_module_level=True)
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[NAME] = module
    return sys.modules[NAME]
