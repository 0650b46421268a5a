"""The command that makes the report of a run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from factormer.app.cli.app import app


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="Folder that `factormer fit` has made.")],
    names: Annotated[
        Path | None,
        typer.Option(
            help="names.csv that the report saved: names of components, kept with the run."
        ),
    ] = None,
    labels: Annotated[
        bool | None, typer.Option(help="Whether the page has the labels of rows and columns; kept.")
    ] = None,
    swap: Annotated[
        bool | None,
        typer.Option(help="Whether components are drawn over the rows, for samples in columns."),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(help="Folder for every chart as SVG and PDF, for a paper; needs matplotlib."),
    ] = None,
) -> None:
    """Write the report of a run again, and its charts for a paper."""
    from factormer.app.report import write_report
    from factormer.app.runs import RunFolder
    from factormer.app.runs.shown import decide, name_factors

    folder = RunFolder(run)
    folder.description()  # which refuses what is no run
    decide(folder, names=names, labels=labels, swap=swap)
    name_factors(folder)
    if figures is not None:
        from factormer.app.report.figures import write_figures

        print(f"figures: {len(write_figures(folder, figures))} files in {figures}")
    print(f"report: {write_report(folder)}")
