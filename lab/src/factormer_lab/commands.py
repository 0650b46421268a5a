"""The commands that the lab adds to `factormer`: train and reproduce."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


class _Bar:
    """A screen with a progress bar."""

    def __init__(self, progress: Progress):
        self.progress, self.task = progress, progress.add_task("", total=None)

    def at(self, text: str, *, done: int | None, total: int | None) -> None:
        self.progress.update(self.task, description=text, completed=done, total=total)

    def line(self, text: str) -> None:
        self.progress.print(text, soft_wrap=True, markup=False, highlight=False)


def train(
    config: Annotated[Path, typer.Argument(help="TOML file, or name of one in lab/configs.")],
    out: Annotated[Path | None, typer.Option(help="Run folder; default runs/NAME.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, …")] = "cpu",
    minutes: Annotated[
        float | None,
        typer.Option(help="Stop after this time, data and all; run again to continue."),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Length of the run and of its schedule, data and all.")
    ] = None,
    begin: Annotated[
        str | None, typer.Option("--from", help="Weights to begin from: a name, or a file.")
    ] = None,
) -> None:
    """Train a network; if stopped at any moment, the same command continues from there."""
    from factormer_lab.train import command

    until = command.until(minutes)
    command.check_device(device)
    kind = command.read(config, seconds=seconds, begin=begin)
    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console()) as progress:
        command.run(kind, _Bar(progress), out=out, device=device, until=until)


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
    only: Annotated[
        list[str] | None,
        typer.Option(help="A network: others keep the numbers that the folder has of them."),
    ] = None,
    images: Annotated[
        bool, typer.Option("--images/--without-images", help="Whether to show the real data.")
    ] = True,
) -> None:
    """Draw the paper's figures, with their numbers; RESULTS.md compares them with its claims."""
    from factormer_lab.paper.reproduce import reproduce as run

    run(figures, data=data, out=out, only=only or (), images=images, report=print)
    print(f"results: {out / 'RESULTS.md'}")
