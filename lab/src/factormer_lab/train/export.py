"""From a finished run to a weights file with its card."""

from __future__ import annotations

import platform
from dataclasses import asdict
from typing import Any

import torch

from factormer.nn.zoo import Card
from factormer_lab.train.config import TrainConfig
from factormer_lab.train.loop import Run

_SHOWN = (0, 1, 2, 3, 5, 10, 20)


def make_card(
    config: TrainConfig,
    run: Run[Any],
    *,
    device: str,
    begun_from: Card | None = None,
    version: str = "1",
) -> Card:
    """The card of a run: config, data, cost and validation figures."""
    data = f"{config.copies} × 15 000 synthetic matrices (app. C), rank {config.model.rank}"
    if config.up_to_100:
        data += f", and {config.copies} × 2 000 of 30 to 100 rows and columns"
    training = how_trained(data, config, run, device)
    if begun_from is not None:
        training["begun from"] = {"name": begun_from.name, **begun_from.training}
    return Card(config.name, version, config.model, training, figures(config, run.figures))


def figures(config: TrainConfig, validation: dict[str, list[float]]) -> dict[str, Any]:
    """Median RMSE by iteration: an initialization counts from 0, an acceleration from 1."""
    first = 0 if config.model.n_points == 1 else 1
    return {
        f"median RMSE, {name} set": {f"iteration {k + first}": medians[k] for k in _SHOWN}
        for name, medians in validation.items()
    }


def how_trained(data: str, config: Any, run: Run[Any], device: str) -> dict[str, Any]:
    """Return what any card says of its training: the data, the cost, and every option."""
    options = asdict(config)
    options.pop("model")
    return {
        "data": data,
        "steps": run.step,
        "planned steps": run.total,
        "finished": run.finished,
        "seconds": round(run.seconds),
        "device": _device_name(device),
        "torch": torch.__version__,
        "options": options,
    }


def _device_name(device: str) -> str:
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU ({platform.machine()}, {torch.get_num_threads()} threads)"
