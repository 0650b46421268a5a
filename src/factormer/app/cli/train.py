"""The command that trains."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from factormer.app.cli.app import app, console

_KEPT = "the same command continues from there"
_DRAWN = "these are drawn anew by each command: allow more time"


class _OutOfTimeError(Exception):
    """The time is over while data is made."""


@app.command()
def train(
    config: Annotated[Path, typer.Argument(help="TOML file; see experiments/configs.")],
    out: Annotated[Path | None, typer.Option(help="Run folder; default runs/NAME.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, …")] = "cpu",
    minutes: Annotated[
        float | None,
        typer.Option(help="Stop after this time, data and all; run again to continue."),
    ] = None,
) -> None:
    """Train a network; if stopped at any moment, the same command continues from there."""
    from factormer.data.intake import as_device
    from factormer.nn.zoo import find_model, load_factormer, read_card, save_model
    from factormer.train.config import TrainConfig, read_table
    from factormer.train.export import make_card
    from factormer.train.factormer import train as run
    from factormer.train.launches import serves, train_together

    until = _until(minutes)
    as_device(device)
    others = {
        "any-rank": _train_any_rank,
        "rank": _train_rank,
        "any-factormer": _train_any_factormer,
    }
    other = others.get(str(_existing(config, read_table).get("kind")))
    if other is not None:
        other(config, out, device, until)
        return
    options = TrainConfig.load(config)
    folder = out or Path("runs") / options.name
    begun_from = read_card(find_model(options.warm_start)) if options.warm_start else None
    warm = load_factormer(options.warm_start) if options.warm_start else None
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=console
    ) as progress:
        task = progress.add_task("drawing matrices", total=None)

        def report(event: dict[str, Any]) -> None:
            if event["event"] == "step":
                text = f"epoch {event['epoch']}  loss {event['loss']:.4g}"
                progress.update(
                    task, total=event["total"], completed=event["step"], description=text
                )
            if event["event"] == "epoch":
                medians = {name: event[name][:3] for name in ("small", "large")}
                progress.print(f"epoch {event['epoch']}: median RMSE {medians}")

        seconds = max(until - time.monotonic(), 0.0)
        if serves(options, device):
            runs = [(options, folder)]
            (done,) = train_together(runs, device=device, max_seconds=seconds, report=report)
        else:
            done = run(
                options,
                folder,
                device=device,
                max_seconds=seconds,
                warm_start=warm,
                report=report,
            )
    if not done.finished:
        _tell_stopped(done)
    path = folder / f"{options.name}.safetensors"
    save_model(done.model, make_card(options, done, device=device, begun_from=begun_from), path)
    print(f"weights: {path}")


def _train_any_rank(config: Path, out: Path | None, device: str, until: float) -> None:
    from factormer.nn.zoo import load_any_rank
    from factormer.train.anyrank.config import AnyRankTraining
    from factormer.train.anyrank.course import train_any_rank
    from factormer.train.anyrank.export import make_card

    options = AnyRankTraining.load(config)
    says = _Says(
        "drawing matrices", lambda e: f"gain {e['gain']:.3f}  refused {e['refused']:.3f}", _DRAWN
    )
    warm = load_any_rank(options.warm_start) if options.warm_start else None
    _trained(options, out, device, until, train_any_rank, make_card, warm, says)


def _train_any_factormer(config: Path, out: Path | None, device: str, until: float) -> None:
    from factormer.nn.zoo import load_any_factormer
    from factormer.train.anyfactormer.config import AnyFactormerTraining
    from factormer.train.anyfactormer.course import train_any_factormer
    from factormer.train.anyfactormer.export import make_card

    options = AnyFactormerTraining.load(config)
    says = _Says("drawing matrices", lambda e: f"loss {e['loss']:.3f}", _DRAWN)
    warm = load_any_factormer(options.warm_start) if options.warm_start else None
    _trained(options, out, device, until, train_any_factormer, make_card, warm, says)


def _train_rank(config: Path, out: Path | None, device: str, until: float) -> None:
    from factormer.nn.zoo import load_rank
    from factormer.train.rank.config import RankTraining
    from factormer.train.rank.course import train_rank
    from factormer.train.rank.export import make_card

    options = RankTraining.load(config)
    says = _Says("making curves", lambda e: f"loss {e['loss']:.3f}", _KEPT)
    warm = load_rank(options.warm_start) if options.warm_start else None
    _trained(options, out, device, until, train_rank, make_card, warm, says)


class _Says(NamedTuple):
    """What a training says: while data is made, of each step, and if time ends before them."""

    data: str
    step: Callable[[dict[str, Any]], str]
    then: str


def _trained(
    options: Any,
    out: Path | None,
    device: str,
    until: float,
    train: Callable[..., Any],
    make_card: Callable[..., Any],
    warm: Any,
    says: _Says,
) -> None:
    """Train a network that needs data first, and write its weights."""
    from factormer.nn.zoo import save_model

    folder = out or Path("runs") / options.name
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=console
    ) as progress:
        task = progress.add_task(says.data, total=None)

        def report(event: dict[str, Any]) -> None:
            if event["event"] == "data":
                progress.update(task, description=f"{says.data}: {event['text']}")
                if time.monotonic() > until:
                    raise _OutOfTimeError(event["text"])
            else:
                at = {"total": event["total"], "completed": event["step"]}
                progress.update(task, **at, description=says.step(event))

        try:
            done = train(
                options,
                folder,
                device=device,
                max_seconds=max(until - time.monotonic(), 0.0),
                warm_start=warm,
                report=report,
            )
        except _OutOfTimeError as stopped:
            progress.stop()
            print(f"--minutes ended while {says.data}, {stopped} done; {says.then}")
            return
    if not done.finished:
        _tell_stopped(done)
    path = folder / f"{options.name}.safetensors"
    save_model(done.model, make_card(options, done, device=device), path)
    print(f"weights: {path}")


def _until(minutes: float | None) -> float:
    """The reading of `time.monotonic()` at which to stop."""
    if minutes is not None and not 0 <= minutes < math.inf:
        raise ValueError(f"--minutes is {minutes:g}; it must be at least 0")
    return math.inf if minutes is None else time.monotonic() + 60 * minutes


def _tell_stopped(done: Any) -> None:
    print(f"stopped at step {done.step}; {_KEPT}, and errors are measured at the end")


def _existing(path: Path, load: Any) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; configs are in experiments/configs")
    return load(path)
