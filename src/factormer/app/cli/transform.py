"""The command that applies a run to new data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from factormer.app.cli.app import AsJson, app, ended_as_interrupted, print_json


@app.command()
def transform(
    file: Annotated[
        Path, typer.Argument(help="New rows with the columns of the run; as of `fit`.")
    ],
    model: Annotated[Path, typer.Option(help="Folder that `factormer fit` has made.")],
    rank: Annotated[int | None, typer.Option(help="One of its ranks, if it has several.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Table of W to write; default NAME.W.csv.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Array of an npz or mat file, layer of an h5ad.")
    ] = None,
    layout: Annotated[str | None, typer.Option(help="Three axes as images or as a cube.")] = None,
    transpose: Annotated[
        bool, typer.Option("--transpose", help="Exchange rows and columns.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find the coefficients W of new rows for the components of a run, which stay as they are."""
    from factormer.app.read import read
    from factormer.app.runs import RunFolder
    from factormer.app.runs.folder import write_factor
    from factormer.app.runs.transform import transform as run

    data = read(file, key=key, layout=layout, transpose=transpose)
    place = out or Path(f"{data.name}.W.csv")
    with ended_as_interrupted():
        found = run(data, RunFolder(model), rank)
    write_factor(place, found.W, data.rows)
    if as_json:
        shape = list(found.W.shape)
        print_json({"schema": 1, "file": str(place), "shape": shape, "loss": found.loss})
        return
    print(data)
    print(f"W {found.W.shape[0]}×{found.rank}, mean loss of an entry {found.loss:.5g}: {place}")
