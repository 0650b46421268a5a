"""The loop of every training, with a course that counts."""

import json
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from factormer_lab.train.loop import Setting, train


@dataclass(frozen=True)
class Config:
    name: str = "count"
    total: int = 230
    epoch: int = 90
    together: int = 1


class Counted:
    """What learns: the number of its updates."""

    def __init__(self):
        self.average = torch.nn.Linear(1, 1)
        torch.nn.init.zeros_(self.average.weight)

    def state(self):
        return {"model": self.average.state_dict()}

    def restore(self, state):
        self.average.load_state_dict(state["model"])

    @property
    def count(self) -> int:
        return round(self.average.weight.item())


class CountedCourse:
    def __init__(self, config: Config, setting: Setting, after: Callable[[int], object] = id):
        self.learner, self.config, self.after = Counted(), config, after
        self.total, self.epoch = config.total, config.epoch

    def update(self, step: int) -> list[dict[str, Tensor]]:
        assert self.learner.count == step
        with torch.no_grad():
            self.learner.average.weight += self.config.together
        self.after(step)
        return [{"loss": torch.tensor(float(step + k))} for k in range(self.config.together)]

    def rate(self, step: int) -> float:
        return 1 / (1 + step)

    def figures(self) -> dict[str, int]:
        return {"count": self.learner.count}


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_lines_say_the_mean_of_what_was_since_the_last_one(tmp_path):
    run = train(CountedCourse, Config(), tmp_path)
    assert (run.finished, run.step, run.total, run.figures) == (True, 230, 230, {"count": 230})
    steps = [(line["step"], line["loss"]) for line in lines(tmp_path) if "loss" in line]
    assert steps == [(100, 49.5), (200, 149.5), (230, 214.5)]
    assert [line["lr"] for line in lines(tmp_path) if "lr" in line] == [1 / 100, 1 / 200, 1 / 230]


def test_figures_are_measured_after_each_epoch_and_at_the_end(tmp_path):
    train(CountedCourse, Config(), tmp_path)
    measured = [(e["step"], e["epoch"], e["count"]) for e in lines(tmp_path) if "count" in e]
    assert measured == [(90, 0, 90), (180, 1, 180), (230, 2, 230)]


def test_updates_that_belong_together_are_never_parted(tmp_path):
    config, steps = Config(total=28, together=7), []
    while not (run := train(CountedCourse, config, tmp_path, max_seconds=0.0)).finished:
        steps.append(run.step)
        assert run.figures == {}
    assert steps == [7, 14, 21]
    assert run.model.weight.item() == pytest.approx(28)


def test_a_resumed_run_writes_the_lines_of_one_that_was_never_stopped(tmp_path):
    def interrupt(step: int) -> None:
        if step == 150:
            signal.raise_signal(signal.SIGINT)

    stopped = train(partial(CountedCourse, after=interrupt), Config(), tmp_path / "parts")
    assert (stopped.step, stopped.finished) == (151, False)
    train(CountedCourse, Config(), tmp_path / "parts")
    train(CountedCourse, Config(), tmp_path / "whole")
    parts, whole = (
        [(line["step"], line["epoch"], line.get("count")) for line in lines(tmp_path / name)]
        for name in ("parts", "whole")
    )
    assert parts == whole


def test_a_finished_run_is_measured_again_but_not_written_twice(tmp_path):
    train(CountedCourse, Config(), tmp_path)
    before = lines(tmp_path)
    assert train(CountedCourse, Config(), tmp_path).figures == {"count": 230}
    assert lines(tmp_path) == before


def test_a_checkpoint_of_another_version_is_refused_with_a_sentence(tmp_path):
    train(CountedCourse, Config(), tmp_path, max_seconds=0.0)
    path = tmp_path / "checkpoint.pt"
    saved = torch.load(path, weights_only=True)
    torch.save(saved | {"learner": {"network": saved["learner"]["model"]}}, path)
    with pytest.raises(ValueError, match=r"checkpoint\.pt is of another version .*; remove it"):
        train(CountedCourse, Config(), tmp_path)
