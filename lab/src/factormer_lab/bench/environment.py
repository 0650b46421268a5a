"""All that the seconds of a benchmark may depend on."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

CORE = ("factormer", "torch", "numba", "numpy", "scipy", "scikit-learn")


def version(package: str) -> str | None:
    """Return the version of an installed package, None of one that is not."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def environment(packages: Iterable[str] = CORE) -> dict[str, Any]:
    """Return machine, versions, settings of threads, and the command; nothing is imported."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {
        "cpu": next(names, platform.processor() or platform.machine()),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "versions": {name: version(name) for name in dict.fromkeys(packages)},
        "thread_variables": {k: v for k, v in os.environ.items() if k.endswith("_NUM_THREADS")},
        "command": shlex.join(_command()),
    }


def _command() -> list[str]:
    """Return the command that runs this program again, as words."""
    program, *arguments = sys.argv
    if program.startswith("bench "):  # the name that a benchmark gets in `__main__`
        name = program.removeprefix("bench ")
        return ["python", "-m", "factormer_lab.bench", name, *arguments]
    return ["python", os.path.relpath(program), *arguments]
