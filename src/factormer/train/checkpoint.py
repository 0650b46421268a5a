"""What survives a kill: one atomic file with all that a run needs to continue, in its folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from factormer.data.files import check_place, parsed, replacing, unwritten, write
from factormer.data.locks import held

Train = TypeVar("Train", bound=Callable[..., Any])


def alone(train: Train) -> Train:
    """The same training, with its folder made and locked."""

    @wraps(train)
    def held_train(config: Any, folder: Path, **options: Any) -> Any:
        with held(folder):
            return train(config, folder, **options)

    return cast("Train", held_train)


def save_checkpoint(path: Path, contents: Mapping[str, Any]) -> None:
    """Write a new file, then replace the old one, which no kill or full disk can damage."""
    with replacing(path) as file:
        torch.save(dict(contents), file)


def load_checkpoint(path: Path, device: torch.device) -> dict[str, Any]:
    """Read a checkpoint; tensors and numbers only, nothing in the file is executed."""
    try:
        contents = torch.load(path, map_location=device, weights_only=True)
        return {key: contents[key] for key in ("config", "learner", "step", "seconds")}
    except Exception as error:
        raise ValueError(
            f"{path} is not a checkpoint of this program, or is damaged ({error}); "
            "remove it to train from the beginning"
        ) from error


class MetricsLog:
    """Lines of JSON; on resuming, lines after the checkpoint are dropped and written again."""

    def __init__(self, path: Path, *, resume_at: int):
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        kept = [line for line in lines if _step(line) <= resume_at]
        write(path, "".join(line + "\n" for line in kept))

    def write(self, **values: Any) -> None:
        check_place(self.path)
        try:
            with self.path.open("a") as file:
                file.write(json.dumps(values) + "\n")
        except OSError as error:
            raise unwritten(self.path, error) from error


def _step(line: str) -> int | float:
    try:
        step = parsed(line)["step"]
        return step if isinstance(step, int | float) else float("inf")
    except (ValueError, KeyError, TypeError):
        return float("inf")  # a line cut short by a kill
