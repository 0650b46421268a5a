"""What survives a kill: one atomic file with all that a run needs to go on exactly."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch


def save_checkpoint(path: Path, contents: Mapping[str, Any]) -> None:
    """Write beside the old file, then replace it: no kill or full disk can damage that one."""
    temporary = path.with_suffix(".part")
    with temporary.open("wb") as file:
        torch.save(dict(contents), file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


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
        path.write_text("".join(line + "\n" for line in kept))

    def write(self, **values: Any) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(values) + "\n")


def _step(line: str) -> int | float:
    try:
        return json.loads(line)["step"]
    except (json.JSONDecodeError, KeyError, TypeError):
        return float("inf")  # a line cut short by a kill
