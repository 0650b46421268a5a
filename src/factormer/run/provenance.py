"""The provenance of a result: package, commit, networks, torch, machine."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from factormer.nn.zoo import checksum

_PACKAGE = Path(__file__).parents[1]


def provenance() -> dict[str, Any]:
    """All that the numbers may depend on; without paths or names of this computer's owner."""
    return {
        "factormer": _version(),
        "commit": commit(),
        "networks": {p.stem: checksum(p) for p in sorted(_PACKAGE.glob("weights/*.safetensors"))},
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": {"cpu": cpu_name(), "cores": os.cpu_count(), "threads": torch.get_num_threads()},
    }


def commit() -> str | None:
    """The commit of the checkout that this runs from, "-dirty" if it was changed since."""
    try:
        top = Path(_git("rev-parse", "--show-toplevel"))
        if top / "src" / "factormer" != _PACKAGE:  # installed somewhere inside another checkout
            return None
        return _git("describe", "--always", "--dirty", "--exclude=*", "--abbrev=40")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(_PACKAGE), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def cpu_name() -> str:
    """The processor by the name its maker gave it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _version() -> str:
    """Return the version of the package, unless it is used as plain files."""
    try:
        return metadata.version("factormer")
    except metadata.PackageNotFoundError:
        return "unknown"
