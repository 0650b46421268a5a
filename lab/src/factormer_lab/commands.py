"""The commands that the lab adds to `factormer`: train and reproduce."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

_KEPT = "the same command continues from there"
_DRAWN = "these are drawn anew by each command: allow more time"


class _OutOfTimeError(Exception):
    """The time is over while data is made."""


def train(
    config: Annotated[Path, typer.Argument(help="TOML file; see lab/configs.")],
    out: Annotated[Path | None, typer.Option(help="Run folder; default runs/NAME.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, …")] = "cpu",
    minutes: Annotated[
        float | None,
        typer.Option(help="Stop after this time, data and all; run again to continue."),
    ] = None,
) -> None:
    """Train a network; if stopped at any moment, the same command continues from there."""
    from factormer.data.intake import as_device
    from factormer_lab.train.config import read_table

    until = _until(minutes)
    as_device(device)
    kind = str(_existing(config, read_table).get("kind"))
    _trained(_KINDS.get(kind, _factormer)(config, device), out, device, until)


def reproduce(
    figures: Annotated[list[str] | None, typer.Argument(help="Figures; default all.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with Yale_64x64.mat (or yale_faces_64.npz) and jasperRidge2_R198.mat (or "
            "jasper_ridge.npz); default $FACTORMER_DATA."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for what is made.")] = Path("runs/reproduce"),
) -> None:
    """Draw the paper's figures, with their numbers; RESULTS.md compares them with its claims."""
    from factormer_lab.paper.reproduce import reproduce as run

    run(figures, data=data, out=out, report=print)
    print(f"results: {out / 'RESULTS.md'}")


class _Kind(NamedTuple):
    """A config that was read, how it is trained, and what is said in the meantime."""

    options: Any
    train: Callable[..., Any]
    make_card: Callable[..., Any]
    warm_start: Any
    making: str  # while data is made
    then: str  # if the time ends before that
    step: Callable[[dict[str, Any]], str]
    figures: Callable[[dict[str, Any]], str] = lambda event: ""


def _factormer(config: Path, device: str) -> _Kind:
    from factormer.nn.zoo import find_model, load_factormer, read_card
    from factormer_lab.train.config import TrainConfig
    from factormer_lab.train.export import make_card
    from factormer_lab.train.factormer import train_factormer

    options = TrainConfig.load(config)
    begun_from = read_card(find_model(options.warm_start)) if options.warm_start else None
    return _Kind(
        options,
        train_factormer,
        partial(make_card, begun_from=begun_from),
        load_factormer(options.warm_start) if options.warm_start else None,
        "drawing matrices",
        _DRAWN,
        lambda e: f"epoch {e['epoch']}  loss {e['loss']:.4g}",
        lambda e: (
            f"epoch {e['epoch']}: median RMSE "
            + ", ".join(f"{name} {e[name][:3]}" for name in ("small", "large"))
        ),
    )


def _any_rank(config: Path, device: str) -> _Kind:
    from factormer.nn.zoo import load_any_rank
    from factormer_lab.train.anyrank.config import AnyRankTraining
    from factormer_lab.train.anyrank.course import train_any_rank
    from factormer_lab.train.anyrank.export import make_card

    options = AnyRankTraining.load(config)
    warm = load_any_rank(options.warm_start) if options.warm_start else None

    def step(event: dict[str, Any]) -> str:
        return f"gain {event['gain']:.3f}  refused {event['refused']:.3f}"

    return _Kind(options, train_any_rank, make_card, warm, "drawing matrices", _DRAWN, step)


def _any_factormer(config: Path, device: str) -> _Kind:
    from factormer.nn.zoo import load_any_factormer
    from factormer_lab.train.anyfactormer.config import AnyFactormerTraining
    from factormer_lab.train.anyfactormer.course import train_any_factormer
    from factormer_lab.train.anyfactormer.export import make_card

    options = AnyFactormerTraining.load(config)
    warm = load_any_factormer(options.warm_start) if options.warm_start else None
    return _Kind(options, train_any_factormer, make_card, warm, "drawing matrices", _DRAWN, _loss)


def _rank(config: Path, device: str) -> _Kind:
    from factormer.nn.zoo import load_rank
    from factormer_lab.train.rank.config import RankTraining
    from factormer_lab.train.rank.course import train_rank
    from factormer_lab.train.rank.export import make_card

    options = RankTraining.load(config)
    warm = load_rank(options.warm_start) if options.warm_start else None
    return _Kind(options, train_rank, make_card, warm, "making curves", _KEPT, _loss)


def _loss(event: dict[str, Any]) -> str:
    return f"loss {event['loss']:.3f}"


_KINDS = {"any-rank": _any_rank, "any-factormer": _any_factormer, "rank": _rank}


def _trained(kind: _Kind, out: Path | None, device: str, until: float) -> None:
    """Train a network, and write its weights."""
    from factormer.nn.zoo import save_model

    name = kind.options.name
    folder = out or Path("runs") / name
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=Console()
    ) as progress:
        task = progress.add_task(kind.making, total=None)

        def report(event: dict[str, Any]) -> None:
            if event["event"] == "data":
                progress.update(task, description=f"{kind.making}: {event['text']}")
                if time.monotonic() > until:
                    raise _OutOfTimeError(event["text"])
            elif event["event"] == "step":
                at = {"total": event["total"], "completed": event["step"]}
                progress.update(task, **at, description=kind.step(event))
            elif text := kind.figures(event):
                progress.print(text)

        try:
            done = kind.train(
                kind.options,
                folder,
                device=device,
                max_seconds=max(until - time.monotonic(), 0.0),
                warm_start=kind.warm_start,
                report=report,
            )
        except _OutOfTimeError as stopped:
            progress.stop()
            print(f"--minutes ended while {kind.making}, {stopped} done; {kind.then}")
            return
    if not done.finished:
        print(f"stopped at step {done.step}; {_KEPT}, and errors are measured at the end")
    path = folder / f"{name}.safetensors"
    save_model(done.model, kind.make_card(kind.options, done, device=device), path)
    print(f"weights: {path}")


def _until(minutes: float | None) -> float:
    """The reading of `time.monotonic()` at which to stop."""
    if minutes is not None and not 0 <= minutes < math.inf:
        raise ValueError(f"--minutes is {minutes:g}; it must be at least 0")
    return math.inf if minutes is None else time.monotonic() + 60 * minutes


def _existing(path: Path, load: Any) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; configs are in lab/configs")
    return load(path)
