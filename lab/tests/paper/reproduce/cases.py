"""Figures of a second: small matrices in place of the validation sets and of the real data."""

from typing import Any

import pytest
import torch
from torch import Tensor

from factormer_lab.paper.reproduce import command
from factormer_lab.paper.reproduce.command import Recipe
from factormer_lab.paper.reproduce.optimum import optimum
from factormer_lab.paper.reproduce.real import real
from factormer_lab.paper.reproduce.synthetic import synthetic as draw_set
from factormer_lab.train import synthetic
from factormer_lab.train.synthetic import SizeClass

KEYS = [
    "ao-admm",
    "ao-admm-trace",
    "init-r10",
    "init-r10-paper",
    "accel-r10-paper",
    "accel-r10",
    "init-r10-always",
    "accel-r10-always",
]
N_ITER = 30
QUARTILES = ("q1", "median", "q3")


def shrink_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put three small matrices in place of each validation set."""
    classes = {"small": SizeClass(2, (11, 13), (11, 13)), "large": SizeClass(3, (14, 16), (12, 16))}
    monkeypatch.setattr(synthetic, "VALIDATION", classes)
    for name in classes:
        recipe = Recipe(lambda _, name=name: draw_set(name, n_iter=N_ITER))
        monkeypatch.setitem(command.FIGURES, f"synthetic-{name}", recipe)


def shrink_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a few images of 6×6 in place of the real ones."""
    for name in command.LOADERS:
        monkeypatch.setitem(command.LOADERS, name, lambda folder: stand_in())
        recipe = Recipe(lambda V, name=name: real(name, V[name], n_iter=N_ITER), (name,))
        monkeypatch.setitem(command.FIGURES, name, recipe)
    long = Recipe(lambda V: optimum(V, n_iter=N_ITER), ("yale", "jasper"))
    monkeypatch.setitem(command.FIGURES, "optimum", long)


def stand_in() -> Tensor:
    """Twelve images of mean 1 that are no product of low rank."""
    V = torch.rand(36, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return V / V.mean()


def synthetic_numbers(*, level: float = 1.0, ratio: float = 0.5) -> dict[str, Any]:
    """A made-up set: AO-ADMM's error is 1/(t + 1), each other's is `level`/(t + 1)."""
    rows = {}
    for key in KEYS:
        scale, share = (1.0, 1.0) if key == "ao-admm" else (level, ratio)
        rows[key] = {
            "label": key,
            "rmse": {q: [scale / (t + 1) for t in range(101)] for q in QUARTILES},
            "ratio": {q: [share] * 101 for q in QUARTILES},
            "kept": None if key.startswith("ao") else 1.0,
            "seconds": {"network": 0.0 if key.startswith("ao") else 2.0, "iteration": 0.1},
        }
    return {"set": "small", "n_problems": 128, "n_iter": 100, "contestants": rows}


def real_numbers(**ends: float | None) -> dict[str, Any]:
    """A made-up real matrix on which each contestant falls from 1 to an end, 0.5 if not given.

    Keys have underscores for hyphens here.
    """
    rows = {}
    for key in KEYS:
        end = ends.get(key.replace("-", "_"), 0.5)
        rows[key] = {
            "label": key,
            "rmse": [1.0, *([0.8] * 99), end],
            "ratio": [1.0] * 101,
            "kept": None if key.startswith("ao") else 0.8,
            "seconds": {"network": 0.0 if key.startswith("ao") else 3.0, "iteration": 0.01},
        }
    return {"set": "yale", "shape": [36, 12], "contestants": rows}
