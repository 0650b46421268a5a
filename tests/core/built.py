"""The compiled core as a Python module, built by CMake into build/core when tests first ask for it.

FACTORMER_CORE names a folder with another build: one with sanitizers, say.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "core"
BUILD = Path(os.environ.get("FACTORMER_CORE", ROOT / "build" / "core"))
FILE = BUILD / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"


def build() -> None:
    """Run CMake, which compiles what has changed; one process at a time."""
    if "FACTORMER_CORE" in os.environ:
        return
    if not any(map(shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("there is no compiler that takes GCC's flags", allow_module_level=True)
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        if os.name == "posix":
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        cmake, ninja = _tool("cmake"), _tool("ninja")
        by = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"] if ninja else []
        python = f"-DPython_EXECUTABLE={sys.executable}"
        _run([cmake or "cmake", "-S", str(SOURCE), "-B", str(BUILD), python, *by])
        _run([cmake or "cmake", "--build", str(BUILD), "--parallel", "2"])


def _tool(name: str) -> str | None:
    """Return the path of a program, which this Python's environment may bring."""
    return shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")


def load() -> ModuleType:
    """Import the module, after a build where one is needed."""
    if "_core" not in sys.modules:
        build()
        spec = importlib.util.spec_from_file_location("_core", FILE)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["_core"] = module
        spec.loader.exec_module(module)
    return sys.modules["_core"]
