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
    """The beginning of a course: its folder and device, first weights, who listens, the clock."""

    folder: Path
    device: torch.device
    warm_start: Any
    report: Report
    made: Callable[[], int]  # updates so far, in all calls
    elapsed: Callable[[], float]  # seconds so far, in all calls


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

    epoch: int  # updates after which figures are measured, again and again; at the end anyway

    @property
    def total(self) -> int:
        """Updates in all; it may be an estimate until they are made."""
        ...

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
        step, outcomes = kept.step, []

        def elapsed() -> float:
            return kept.seconds + time.monotonic() - started

        setting = Setting(folder, on, warm_start, report, made=lambda: step, elapsed=elapsed)
        course = course_of(config, setting)
        kept.resume(course.learner.restore)
        saved_at = time.monotonic()

        def say(event: str, values: dict[str, Any]) -> None:
            line = {"step": step, "epoch": (step - 1) // course.epoch, **values}
            line |= {"seconds": elapsed()}
            kept.log.write(**line)
            report({"event": event, "total": course.total, **line})

        with HeldInterrupt() as interrupt:
            finished = step >= course.total
            while not finished:
                new = course.update(step)
                before, step = step, step + len(new)
                outcomes += new
                finished = step >= course.total
                if finished or _passed(_LOG, before, step):
                    say("step", _means(outcomes) | {"lr": course.rate(step - 1)})
                    outcomes = []
                if not finished and _passed(course.epoch, before, step):
                    say("figures", course.figures())
                if time.monotonic() - saved_at > checkpoint_seconds:
                    kept.save(course.learner.state(), step, elapsed())
                    saved_at = time.monotonic()
                if interrupt.requested or time.monotonic() - started > max_seconds:
                    break
            kept.save(course.learner.state(), step, elapsed())
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
