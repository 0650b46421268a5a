"""Checkpoints: one atomic file with all that a run needs to continue, in its folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from factormer.data.files import check_place, parsed, replacing, unwritten, write


class Kept:
    """The folder of a run: the checkpoint that it continues from, and its log."""

    def __init__(self, folder: Path, config: Any, device: torch.device):
        """Raise, naming the difference, if the checkpoint is of a run with other options."""
        self.path, self.config = folder / "checkpoint.pt", asdict(config)
        self.step, self.seconds, self._state = 0, 0.0, None
        if self.path.exists():
            saved = load_checkpoint(self.path, device)
            self._check_same_run(saved["config"])
            self.step, self.seconds = saved["step"], saved["seconds"]
            self._state = saved["learner"]
        self.log = MetricsLog(folder / "metrics.jsonl", resume_at=self.step)

    def _check_same_run(self, saved: dict[str, Any]) -> None:
        if saved != self.config:
            either = saved.keys() | self.config.keys()
            changed = sorted(k for k in either if saved.get(k) != self.config.get(k))
            raise ValueError(
                f"{self.path} was written by another config (it differs in {', '.join(changed)}); "
                "choose another output folder, or go back to that config"
            )

    def resume(self, restore: Callable[[dict[str, Any]], None]) -> None:
        """Give what was kept, if anything was, to who continues from it."""
        if self._state is None:
            return
        state, self._state = self._state, None
        try:
            restore(state)
        except (KeyError, RuntimeError, ValueError) as error:
            raise ValueError(
                f"{self.path} is of another version of this program ({error}); "
                "remove it to train from the beginning, or finish with that version"
            ) from error

    def save(self, state: dict[str, Any], step: int, seconds: float) -> None:
        """Keep what a later run needs to continue."""
        contents = {"config": self.config, "learner": state, "step": step, "seconds": seconds}
        save_checkpoint(self.path, contents)


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
