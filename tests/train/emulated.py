"""`learning.cu` compiled for the processor: the text is the same, threads are threads."""

import ctypes
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
from torch import Tensor

from factormer.kernels.learning import Sizes, Updates
from factormer.train.chip import ChipLearner

HERE = Path(__file__).parent
COMPILER = shutil.which("g++")


@cache
def compiled(sizes: Sizes, flags: tuple[str, ...] = ("-O1",)) -> ctypes.CDLL:
    """A library with `run_on_processor`; needs a C++ compiler."""
    assert COMPILER is not None
    folder = Path(mkdtemp(prefix="factormer-learning-"))
    before, after = ((HERE / name).read_text() for name in ("processor.h", "processor_end.h"))
    (folder / "learning.cpp").write_text(before + sizes.source() + after)
    options = ("-std=c++17", *flags, "-w", "-shared", "-fPIC", "-pthread")
    command = [COMPILER, *options, "-o", "learning.so", "learning.cpp"]
    subprocess.run(command, check=True, cwd=folder)
    library = ctypes.CDLL(str(folder / "learning.so"))
    shutil.rmtree(folder)
    return library


def launch(learner: ChipLearner, updates: Updates, blocks: int = 1, threads: int = 1) -> Tensor:
    """In place of `ChipLearner.launch`."""
    values, losses = learner.arguments(updates)
    library = compiled(learner.sizes)
    library.run_on_processor(blocks, threads, *(_as_c(value) for value in values))
    return losses


def _as_c(value: Any) -> Any:
    if isinstance(value, np.integer):
        return ctypes.c_int(int(value))
    if isinstance(value, np.floating):
        return ctypes.c_float(float(value))
    return ctypes.c_void_p(value)
