"""Training on a GPU by launches of many updates, several networks beside one another.

A network at batch size one leaves most of a GPU idle, so others can train at the same time at
hardly any cost. Folders, checkpoints and logs are those of the plain loop, which can continue
a run of this and the reverse; the order of the batches is the same.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from factormer.data.locks import held
from factormer.nn.refining import Network
from factormer.train import synthetic
from factormer.train.checkpoint import Kept
from factormer.train.chip import ChipLearner, unserved
from factormer.train.config import TrainConfig
from factormer.train.factormer import epoch_order, fresh, learning_rate, validate
from factormer.train.interrupt import HeldInterrupt
from factormer.train.loop import Report, Run
from factormer.train.synthetic import Noise, SizeClass, Stack, training_set

_SPAN = 25, 4000  # updates in a launch


def train_together(
    runs: Sequence[tuple[TrainConfig, Path]],
    *,
    device: str = "cuda",
    max_seconds: float = math.inf,
    report: Report = lambda event: None,
    checkpoint_seconds: float = 60,
    launch_seconds: float = 1.0,
) -> list[Run[Network]]:
    """Train each config in its folder, continuing from the checkpoint there if there is one.

    Stops at the end, or with checkpoints after `max_seconds` or on Ctrl-C. Learning rates, batches
    and the checkpoints are those of the plain loop.
    """
    started = time.monotonic()
    with ExitStack() as locks, HeldInterrupt() as interrupt:
        for _, folder in runs:
            locks.enter_context(held(folder))
        all_runs = [_Training(config, folder, device, report) for config, folder in runs]
        saved_at = time.monotonic()
        while active := [run for run in all_runs if run.step < run.total]:
            for run in active:
                run.launch(_blocks(device) // len(active))
            for run in active:
                run.finish(launch_seconds)
            if time.monotonic() - saved_at > checkpoint_seconds:
                for run in active:
                    run.save()
                saved_at = time.monotonic()
            if interrupt.requested or time.monotonic() - started > max_seconds:
                break
        return [run.result() for run in all_runs]


def train_by_launches(
    config: TrainConfig,
    folder: Path,
    *,
    device: str = "cuda",
    max_seconds: float = math.inf,
    warm_start: None = None,
    report: Report = lambda event: None,
) -> Run[Network]:
    """Train one network alone, as `loop.train` does; from fresh weights only."""
    runs = [(config, folder)]
    (done,) = train_together(runs, device=device, max_seconds=max_seconds, report=report)
    return done


def serves(config: TrainConfig, device: str) -> bool:
    """Whether a run can be trained so: on a GPU, with CuPy, from fresh weights, at batch size 1."""
    on_gpu = torch.device(device).type == "cuda"
    free = not config.warm_start and unserved(config) is None
    return on_gpu and free and find_spec("cupy") is not None


def _blocks(device: str) -> int:
    if torch.device(device).type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count


@lru_cache(maxsize=2)
def _drawn(
    classes: tuple[SizeClass, ...], rank: int, noise: Noise, copies: int, seed: int
) -> list[Stack]:
    return training_set(rank, noise, copies, seed=seed)


class _Training:
    """One of the runs: its learner, where it is, and what it costs."""

    def __init__(self, config: TrainConfig, folder: Path, device: str, report: Report):
        self.config, self.device, self.report = config, device, report
        drawn = (
            tuple(synthetic.TRAINING),
            config.model.rank,
            config.noise,
            config.copies,
            config.seed,
        )
        self.data = _drawn(*drawn)
        self.learner = ChipLearner(fresh(config), config, self.data, device)
        self.n_batches = len(epoch_order(self.data, config, 0))
        self.total = config.epochs * self.n_batches
        self.kept = Kept(folder, config, torch.device("cpu"))
        self.kept.resume(self.learner.restore)
        self.step, self.seconds, self.span = self.kept.step, self.kept.seconds, _SPAN[0]
        self.validation: dict[str, Any] = {}
        self.validated_at = -1
        on_gpu = torch.device(device).type == "cuda"
        self.stream = torch.cuda.Stream(device) if on_gpu else None
        self.epoch, self.order = -1, []
        self.clock, self.losses = _Clock(self.stream), torch.zeros(0)

    def launch(self, blocks: int) -> None:
        """Queue the next updates, none of them beyond the epoch."""
        epoch, within = divmod(self.step, self.n_batches)
        if epoch != self.epoch:
            self.epoch, self.order = epoch, epoch_order(self.data, self.config, epoch)
        batches = self.order[within : within + self.span]
        steps = range(self.step, self.step + len(batches))
        rates = [learning_rate(self.config, step, self.n_batches) for step in steps]
        updates = self.learner.prepared(batches, rates, self.config.n_accel_at(epoch))
        self.clock = _Clock(self.stream)
        self.losses = self.learner.launch(updates, self.stream, blocks)
        self.clock.stop()

    def finish(self, launch_seconds: float) -> None:
        """Wait for them, and write down how they went."""
        took, losses = self.clock.seconds(), self.losses.cpu()
        self.step, self.seconds = self.step + len(losses), self.seconds + took
        step, epoch = self.step, self.epoch
        share = launch_seconds / max(took, 1e-9)
        self.span = int(min(max(self.span * min(share, 4.0), _SPAN[0]), _SPAN[1]))
        lr = learning_rate(self.config, step - 1, self.n_batches)
        line = {"step": step, "epoch": epoch, "loss": losses.mean().item(), "lr": lr}
        line |= {"seconds": self.seconds}
        self.kept.log.write(**line)
        self.report({"event": "step", "name": self.config.name, "total": self.total, **line})
        if step % self.n_batches == 0:
            self.validate()
            line = {"step": step, "epoch": epoch, "seconds": self.seconds, **self.validation}
            self.kept.log.write(**line)
            self.report({"event": "figures", "name": self.config.name, "total": self.total, **line})

    def validate(self) -> None:
        self.learner.state()  # brings its network up to date
        model = copy.deepcopy(self.learner.average).to(self.device)
        self.validation, self.validated_at = validate(model, self.config), self.step

    def save(self) -> None:
        self.kept.save(self.learner.state(), self.step, self.seconds)

    def result(self) -> Run[Network]:
        self.save()
        if self.step >= self.total and self.validated_at != self.step:
            self.validate()
        is_valid = self.validated_at == self.step  # there is no time to measure a run cut short
        return Run(
            self.learner.average,
            self.step >= self.total,
            self.step,
            self.total,
            self.seconds,
            self.validation if is_valid else {},
        )


class _Clock:
    """The time of a launch on its own stream: waiting for those on others is not in it."""

    def __init__(self, stream: torch.cuda.Stream | None):
        self.stream, self.begun, self.ended = stream, time.monotonic(), 0.0
        if stream is not None:
            self.marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            self.marks[0].record(stream)

    def stop(self) -> None:
        self.ended = time.monotonic()
        if self.stream is not None:
            self.marks[1].record(self.stream)

    def seconds(self) -> float:
        """Wait for the end, and say how long it took."""
        if self.stream is None:
            return self.ended - self.begun
        self.stream.synchronize()
        return self.marks[0].elapsed_time(self.marks[1]) / 1000
