"""The compiled core as a module, where the package has one; and the rules that it shares with GPUs.

FACTORMER_NO_CORE=1 does without it. FACTORMER_CORE names a folder with another build of it, with
sanitizers, say.
"""

from __future__ import annotations

import os
import sys
import warnings
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

_NAME = "factormer._core"
_PACKAGE = Path(__file__).parents[1]
_REMEDY = (
    "Install factormer again, from a wheel or with a compiler (GCC 12 or Clang 14, on Windows "
    "clang-cl): pip install --force-reinstall --no-deps --no-cache-dir factormer"
)


@cache
def core() -> ModuleType | None:
    """Return the compiled core, or None; if it is missing or broken, a warning says so once."""
    if os.environ.get("FACTORMER_NO_CORE", "0") not in ("", "0"):
        return None
    if _NAME in sys.modules:
        return sys.modules[_NAME]
    place = os.environ.get("FACTORMER_CORE") or str(_PACKAGE)
    spec = PathFinder.find_spec(_NAME, [place])
    if spec is None or spec.loader is None:
        _warn("factormer has no compiled core here, so it is slower.")
        return None
    try:
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        _warn(f"The compiled core of factormer cannot be loaded, so it is slower: {error}.")
        return None
    sys.modules[_NAME] = module
    return module


def isa() -> str | None:
    """Return the name of the core's instruction set, None without a core."""
    module = core()
    return module.isa() if module else None


_TYPES = """#ifdef __CUDACC_RTC__  // which has no <cstdint>
using int32_t = int;
using int64_t = long long;
using uint64_t = unsigned long long;
#endif
"""


def rules() -> str:
    """Return the core's rules as one text, with which texts of GPU kernels begin."""
    lines = (line for text in headers().values() for line in text.splitlines())
    text = "\n".join(line for line in lines if not line.startswith("#"))
    return _TYPES + text.replace("FACTORMER_SET", "chip") + "\nusing namespace factormer::chip;\n"


def headers() -> dict[str, str]:
    """Return the core's headers of rules, which kernels of GPUs include: their texts by name."""
    installed, source = _PACKAGE / "core_headers", _PACKAGE.parents[1] / "core"
    folder = installed if installed.is_dir() else source
    names = ("constants.hpp", "extrapolate.hpp", "order.hpp", "random.hpp", "stop.hpp")
    return {name: (folder / name).read_text(encoding="utf-8") for name in names}


def _warn(sentence: str) -> None:
    warnings.warn(f"{sentence} {_REMEDY}", RuntimeWarning, stacklevel=4)
