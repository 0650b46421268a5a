"""train(): the loop of every training: updates, log, checkpoints; resumes exactly after a kill.

What a training has of its own is a `Course`: its updates and its figures. The loop counts
them, writes lines of the log and checkpoints, stops in time or on Ctrl-C, and measures the result.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from factormer.data.locks import held
from factormer_lab.train.checkpoint import Kept
from factormer_lab.train.interrupt import HeldInterrupt

_LOG = 100  # updates between two lines

Report = Callable[[dict[str, Any]], None]
C = TypeVar("C")
M = TypeVar("M", bound=torch.nn.Module)
N = TypeVar("N", bound=torch.nn.Module, covariant=True)


class Setting(NamedTuple):
    """The beginning of a course: its folder and device, first weights, and who listens."""

    folder: Path
    device: torch.device
    warm_start: Any
    report: Report


class Learner(Protocol[N]):
    """All that changes in training."""

    @property
    def average(self) -> N:
        """The network that is kept: its weights averaged over the updates."""
        ...

    def state(self) -> dict[str, Any]:
        """All that changes, as plain tensors and numbers."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to a state."""
        ...


class Course(Protocol[N]):
    """A training. An update depends on the config and its number alone."""

    total: int  # updates in all
    epoch: int  # updates after which figures are measured, again and again; at the end anyway

    @property
    def learner(self) -> Learner[N]:
        """Return the network that learns."""
        ...

    def update(self, step: int) -> Sequence[Mapping[str, Tensor]]:
        """Make the updates from `step` on that belong together; what each says of itself."""
        ...

    def rate(self, step: int) -> float:
        """The learning rate of an update."""
        ...

    def figures(self) -> dict[str, Any]:
        """How well the averaged network does."""
        ...


@dataclass(frozen=True)
class Run(Generic[M]):
    """The result of a call: the averaged network, whether it finished, and its figures."""

    model: M
    finished: bool
    step: int
    total: int
    seconds: float
    figures: dict[str, Any]


def train(
    course_of: Callable[[C, Setting], Course[M]],
    config: C,
    folder: Path,
    *,
    device: str = "cpu",
    max_seconds: float = math.inf,
    warm_start: M | None = None,
    report: Report = lambda event: None,
    checkpoint_seconds: float = 60,
) -> Run[M]:
    """Follow a course in `folder`, continuing from its checkpoint if there is one.

    Stops at the end, or with a checkpoint after `max_seconds` or on Ctrl-C; a resumed run gives the
    same weights as one that was never stopped. A run that is cut short is not measured.
    """
    started, on = time.monotonic(), torch.device(device)
    with held(folder):
        kept = Kept(folder, config, on)
        course = course_of(config, Setting(folder, on, warm_start, report))
        kept.resume(course.learner.restore)
        step, saved_at, made = kept.step, time.monotonic(), []

        def elapsed() -> float:
            return kept.seconds + time.monotonic() - started

        def say(event: str, values: dict[str, Any]) -> None:
            line = {"step": step, "epoch": (step - 1) // course.epoch, **values}
            line |= {"seconds": elapsed()}
            kept.log.write(**line)
            report({"event": event, "total": course.total, **line})

        with HeldInterrupt() as interrupt:
            while step < course.total:
                outcomes = course.update(step)
                before, step = step, step + len(outcomes)
                made += outcomes
                if step >= course.total or _passed(_LOG, before, step):
                    say("step", _means(made) | {"lr": course.rate(step - 1)})
                    made = []
                if step < course.total and _passed(course.epoch, before, step):
                    say("figures", course.figures())
                if time.monotonic() - saved_at > checkpoint_seconds:
                    kept.save(course.learner.state(), step, elapsed())
                    saved_at = time.monotonic()
                if interrupt.requested or time.monotonic() - started > max_seconds:
                    break
            kept.save(course.learner.state(), step, elapsed())
        finished = step >= course.total
        figures = course.figures() if finished else {}
        if finished and step > kept.step:  # a run that had finished before has the line
            say("figures", figures)
        return Run(course.learner.average, finished, step, course.total, elapsed(), figures)


def _passed(every: int, before: int, after: int) -> bool:
    """Whether a multiple lies after the one number, and not after the other."""
    return after // every > before // every


def _means(outcomes: Sequence[Mapping[str, Tensor]]) -> dict[str, float]:
    names = outcomes[0]
    return {name: torch.stack([each[name] for each in outcomes]).mean().item() for name in names}
