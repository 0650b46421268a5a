"""The compiled core as a module, where the package has one; and the rules that it shares with GPUs.

FACTORMER_NO_CORE=1 does without it. FACTORMER_CORE names a folder with another build of it, with
sanitizers, say. Its threads are a pool of its own, which threadpoolctl knows as "factormer": the
library is loaded with this module, so that limits set before the first call hold for that, too.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import threadpoolctl

from factormer.kernels import threads

_NAME = "factormer._core"
_PACKAGE = Path(__file__).parents[1]
_REMEDY = (
    "Install factormer again, from a wheel or with a compiler (GCC 12 or Clang 14, on Windows "
    "clang-cl): pip install --force-reinstall --no-deps --no-cache-dir factormer"
)


@cache
def core() -> ModuleType | None:
    """Return the compiled core, or None; if it is missing or broken, a warning says so once."""
    if _is_refused():
        return None
    module, flaw = _loaded()
    if flaw is not None:
        _warn(flaw)
    return module


def _is_refused() -> bool:
    return os.environ.get("FACTORMER_NO_CORE", "0") not in ("", "0")


def _loaded() -> tuple[ModuleType | None, str | None]:
    """Return the module, or None and what is wrong."""
    if _NAME in sys.modules:
        return sys.modules[_NAME], None
    place = os.environ.get("FACTORMER_CORE") or str(_PACKAGE)
    spec = PathFinder.find_spec(_NAME, [place])
    if spec is None or spec.loader is None:
        return None, "factormer has no compiled core here, so it is slower."
    try:
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        return None, f"The compiled core of factormer cannot be loaded, so it is slower: {error}."
    sys.modules[_NAME] = module
    return module, None


def width() -> int:
    """Return how many threads a call of the core may use here.

    FACTORMER_NUM_THREADS or threadpoolctl says how many, and fewer where work is shared out
    already. Without that variable there are no more than torch has, OMP_NUM_THREADS, the processors
    that the process may run on, and the quota of its container, rounded up.
    """
    module = core()
    assert module is not None
    named = os.environ.get("FACTORMER_NUM_THREADS", "").strip()
    is_named = named.isdecimal() and int(named) > 0
    own = module.threads()
    return int(min(own, threads.most(), own if is_named else threads.width()))


class Ended(NamedTuple):
    """A lane that a call of the core has ended; its history has a row (error, seconds) for each
    iteration, and one for the start.
    """

    W: np.ndarray
    H: np.ndarray
    error: float
    iterations: int
    status: str
    history: np.ndarray


def apart(found: Any, shapes: Iterable[tuple[int, ...]], ranks: Iterable[int]) -> Iterator[Ended]:
    """Yield the lanes of a call one by one, as views of what it returned."""
    module = core()
    assert module is not None
    (W, H, history, ends), w, h, t = found, 0, 0, 0
    W, H = W[:, 0], H[:, 0]
    for (m, n), r, (error, iterations, status, rows) in zip(shapes, ranks, ends, strict=True):
        yield Ended(
            W[w : (w := w + m * r)].reshape(m, r),
            H[h : (h := h + n * r)].reshape(n, r),
            error,
            iterations,
            module.STATUSES[status],
            history[t : (t := t + rows)],
        )


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


class _Pool(threadpoolctl.LibController):  # pyright: ignore[reportGeneralTypeIssues]
    """The threads of the core, as threadpoolctl reads and sets them."""

    user_api = internal_api = "factormer"
    filename_prefixes = ("_core",)
    check_symbols = ("factormer_get_num_threads", "factormer_set_num_threads")

    def get_num_threads(self) -> Any:
        """Return how many threads calls use."""
        return self.dynlib.factormer_get_num_threads()

    def set_num_threads(self, num_threads: int) -> None:
        """Let calls use so many."""
        self.dynlib.factormer_set_num_threads(num_threads)

    def get_version(self) -> Any:
        """Return nothing: the core has the version of the package."""
        return None

    def set_additional_attributes(self) -> None:
        """Set nothing more."""


def _warn(sentence: str) -> None:
    warnings.warn(f"{sentence} {_REMEDY}", RuntimeWarning, stacklevel=4)


threadpoolctl.register(_Pool)
if not _is_refused():
    _loaded()
