"""The command `train` without its screen: which training a config asks for, and how it is run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from factormer.data.intake import as_device
from factormer.nn.zoo import (
    find_model,
    load_any_factormer,
    load_any_rank,
    load_factormer,
    load_rank,
    read_card,
    save_model,
)
from factormer_lab.train.config import TrainConfig, read_table

CONFIGS = Path(__file__).parents[3] / "configs"
SHOWN = (0, 1, 5, 20)  # points of a trajectory whose errors are told
_KEPT = "the same command continues from there"
_DRAWN = "these are drawn anew by each command: allow more time"


class OutOfTimeError(Exception):
    """The time is over while data is made."""


@runtime_checkable
class Screen(Protocol):
    """A place where a training shows how far it is."""

    def at(self, text: str, *, done: int | None, total: int | None) -> None:
        """Show how many of how many updates are made; None while it is not known."""
        ...

    def line(self, text: str) -> None:
        """Print a line that stays."""
        ...


class Kind(NamedTuple):
    """A config that was read, how it is trained, and what is said in the meantime."""

    options: Any
    train: Callable[..., Any]
    make_card: Callable[..., Any]
    warm_start: Any
    making: str  # while data is made
    then: str  # if the time ends before that
    step: Callable[[dict[str, Any]], str]
    figures: Callable[[dict[str, Any]], str] = lambda event: ""


def read(config: Path, *, seconds: float | None = None, begin: str | None = None) -> Kind:
    """Read a config, a file or the name of one in `lab/configs`.

    `seconds` and `begin` stand for the options `seconds` and `warm_start` of a network of one rank.
    """
    named = CONFIGS / f"{config}.toml"
    path = named if not config.is_file() and named.is_file() else config
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; configs are in lab/configs")
    kind = read_table(path).get("kind")
    if kind is None:
        return _factormer(path, seconds, begin)
    if seconds is not None or begin is not None:
        raise ValueError(
            f"--seconds and --from are for networks of one rank, and {path} is of kind {kind!r}; "
            "set its own options"
        )
    return _KINDS.get(str(kind), _unknown)(path)


def run(kind: Kind, screen: Screen, *, out: Path | None, device: str, until: float) -> Path | None:
    """Train a network and write its weights; return their path, or None if there was no time."""
    name = kind.options.name
    folder = out or Path("runs") / name

    def report(event: dict[str, Any]) -> None:
        if event["event"] == "data":
            screen.at(f"{kind.making}: {event['text']}", done=None, total=None)
            if time.monotonic() > until:
                raise OutOfTimeError(event["text"])
        elif event["event"] == "step":
            screen.at(kind.step(event), done=event["step"], total=event["total"])
        elif text := kind.figures(event):
            screen.line(text)

    screen.at(kind.making, done=None, total=None)
    try:
        done = kind.train(
            kind.options,
            folder,
            device=device,
            max_seconds=max(until - time.monotonic(), 0.0),
            warm_start=kind.warm_start,
            report=report,
        )
    except OutOfTimeError as stopped:
        screen.line(f"--minutes ended while {kind.making}, {stopped} done; {kind.then}")
        return None
    if not done.finished:
        screen.line(f"stopped at step {done.step}; {_KEPT}, and errors are measured at the end")
    path = folder / f"{name}.safetensors"
    save_model(done.model, kind.make_card(kind.options, done, device=device), path)
    screen.line(f"weights: {path}")
    return path


def until(minutes: float | None) -> float:
    """The reading of `time.monotonic()` at which to stop."""
    if minutes is not None and not 0 <= minutes < math.inf:
        raise ValueError(f"--minutes is {minutes:g}; it must be at least 0")
    return math.inf if minutes is None else time.monotonic() + 60 * minutes


def check_device(device: str) -> None:
    """Raise with a sentence where this machine has no such device."""
    as_device(device)


def _factormer(config: Path, seconds: float | None, begin: str | None) -> Kind:
    from factormer_lab.train.export import make_card
    from factormer_lab.train.factormer import train_factormer

    options = TrainConfig.load(config)
    if seconds is not None:
        options = replace(options, seconds=seconds)
    if begin is not None:
        options = replace(options, warm_start=begin, alive=False)
    begun_from = read_card(find_model(options.warm_start)) if options.warm_start else None

    def figures(event: dict[str, Any]) -> str:
        medians = (
            f"{name} " + " ".join(f"{event[name][k]:.4f}" for k in SHOWN)
            for name in ("small", "large")
        )
        return (
            f"{event['seconds']:.0f} s, update {event['step']}: "
            f"median RMSE at {', '.join(map(str, SHOWN))}: {', '.join(medians)}"
        )

    return Kind(
        options,
        train_factormer,
        partial(make_card, begun_from=begun_from),
        load_factormer(options.warm_start) if options.warm_start else None,
        "drawing matrices",
        _DRAWN,
        lambda e: f"epoch {e['epoch']}  loss {e['loss']:.4g}",
        figures,
    )


def _any_rank(config: Path) -> Kind:
    from factormer_lab.train.anyrank.config import AnyRankTraining
    from factormer_lab.train.anyrank.course import train_any_rank
    from factormer_lab.train.anyrank.export import make_card

    options = AnyRankTraining.load(config)
    warm = load_any_rank(options.warm_start) if options.warm_start else None

    def step(event: dict[str, Any]) -> str:
        return f"gain {event['gain']:.3f}  refused {event['refused']:.3f}"

    return Kind(options, train_any_rank, make_card, warm, "drawing matrices", _DRAWN, step)


def _any_factormer(config: Path) -> Kind:
    from factormer_lab.train.anyfactormer.config import AnyFactormerTraining
    from factormer_lab.train.anyfactormer.course import train_any_factormer
    from factormer_lab.train.anyfactormer.export import make_card

    options = AnyFactormerTraining.load(config)
    warm = load_any_factormer(options.warm_start) if options.warm_start else None
    return Kind(options, train_any_factormer, make_card, warm, "drawing matrices", _DRAWN, _loss)


def _rank(config: Path) -> Kind:
    from factormer_lab.train.rank.config import RankTraining
    from factormer_lab.train.rank.course import train_rank
    from factormer_lab.train.rank.export import make_card

    options = RankTraining.load(config)
    warm = load_rank(options.warm_start) if options.warm_start else None
    return Kind(options, train_rank, make_card, warm, "making curves", _KEPT, _loss)


def _unknown(config: Path) -> Kind:
    raise ValueError(
        f"{config}: kind is {read_table(config)['kind']!r}; choose one of {', '.join(_KINDS)}, or "
        "leave it out for a network of one rank"
    )


def _loss(event: dict[str, Any]) -> str:
    return f"loss {event['loss']:.3f}"


_KINDS = {"any-rank": _any_rank, "any-factormer": _any_factormer, "rank": _rank}
