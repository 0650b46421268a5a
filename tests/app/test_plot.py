"""Figures are written without a display, and their absence is explained without matplotlib."""

import sys

import numpy as np
import pytest
import torch

from factormer.plot import component_images, convergence
from factormer.run.trace import Row, Trace

TRACE = Trace([Row(t, t / 10, torch.tensor(0.5**t)) for t in range(4)])
IMAGES = np.random.default_rng(0).random((5, 4, 3))


@pytest.mark.parametrize("n_images", [1, 2, 5])
def test_components_are_drawn_whatever_their_number(tmp_path, n_images):
    path = tmp_path / "components.png"
    component_images(IMAGES[:n_images], path, title="some", columns=2)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_traces_are_drawn_with_and_without_a_level(tmp_path):
    for number, level in enumerate([None, ("other", 0.3)]):
        path = tmp_path / f"{number}.png"
        convergence({"one": TRACE, "two": TRACE.scaled(torch.tensor(2.0))}, path, level=level)
        assert path.read_bytes().startswith(b"\x89PNG")


def test_missing_matplotlib_is_said_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pictures need matplotlib: pip install 'factormer\[plo"):
        component_images(IMAGES, tmp_path / "components.png")
