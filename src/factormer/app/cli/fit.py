"""The commands that fit a file and make its report."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from factormer.app.cli import told
from factormer.app.cli.app import AsJson, app, ended_as_interrupted, given, print_json
from factormer.app.cli.bar import Bar
from factormer.app.cli.large import fit_large

Data, Model, Solver, Trust = "Data", "Model", "Solver", "Trust"
_RANK = (
    "Components: 10, a range 2..20 (or 2-20), or a list 4,8,16; each is fitted, and all are "
    "compared. select: chosen from the data, up to 16; select:2-20: of these."
)
_RANKS = 1000  # at most, in one run
_SAID_OF = (
    "what they are (tumours), or what one is drawn as: HEIGHTxWIDTH (pixels of an image), line (a "
    "spectrum, a series) or labels."
)
_ASKED = (
    "l1:WEIGHT, l2:WEIGHT, smooth:WEIGHT, orthogonal:WEIGHT, group:WEIGHT:BY, simplex:TOTAL:BY, "
    "volume[:WEIGHT:DELTA], bounds:LOW:HIGH or free; may be given several times."
)


def _opt(help: str, panel: str | None = None, *names: str, **kwargs: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **kwargs)


@app.command()
def fit(
    file: Annotated[
        Path,
        typer.Argument(
            help="npy, npz, mat, mtx, csv, tsv, txt, parquet, h5ad, h5, zarr, wav, hdr, or a "
            "folder of images or of 10x."
        ),
    ],
    rank: Annotated[str, _opt(_RANK)] = "10",
    out: Annotated[Path | None, _opt("Run folder; default runs/NAME.")] = None,
    title: Annotated[str | None, _opt("Title of the report; default the name of the file.")] = None,
    fresh: Annotated[bool, _opt("Discard the run in that folder.", None, "--fresh")] = False,
    as_json: AsJson = False,
    progress: Annotated[bool | None, _opt("Show a progress bar; by default on a terminal.")] = None,
    key: Annotated[str | None, _opt("Array of an npz or mat file, layer of an h5ad.", Data)] = None,
    layout: Annotated[
        str | None, _opt("Three axes as images or a cube; lines as ratings.", Data)
    ] = None,
    transpose: Annotated[bool, _opt("Exchange rows and columns.", Data, "--transpose")] = False,
    rows_are: Annotated[str | None, _opt(f"Rows: {_SAID_OF}", Data)] = None,
    columns_are: Annotated[str | None, _opt(f"Columns: {_SAID_OF}", Data)] = None,
    row_labels: Annotated[Path | None, _opt("Text file, one label per line.", Data)] = None,
    column_labels: Annotated[Path | None, _opt("Text file, one label per line.", Data)] = None,
    wavelengths: Annotated[
        Path | None, _opt("Text file, the wavelength of each band in nm or µm.", Data)
    ] = None,
    resize: Annotated[str | None, _opt("HEIGHTxWIDTH for images of a folder.", Data)] = None,
    header: Annotated[
        bool | None, _opt("The first line of a table is labels; detected by default.", Data)
    ] = None,
    index: Annotated[
        bool | None, _opt("The first column of a table is labels; detected by default.", Data)
    ] = None,
    mask: Annotated[
        Path | None, _opt("File of V's shape: 1 where an entry is known, 0 where not.", Data)
    ] = None,
    weights: Annotated[
        Path | None,
        _opt("File of V's shape, or of a column: how much an entry, or a row, counts.", Data),
    ] = None,
    missing: Annotated[str | None, _opt("zeros: zeros of V are not known.", Data)] = None,
    loss: Annotated[
        str,
        _opt(
            "frobenius (or fro), kullback-leibler (kl), itakura-saito (is), the β of a divergence, "
            "or select: by how the noise grows.",
            Model,
        ),
    ] = "frobenius",
    regularize_w: Annotated[list[str] | None, _opt(f"On W: {_ASKED}", Model)] = None,
    regularize_h: Annotated[list[str] | None, _opt(f"On H: {_ASKED}", Model)] = None,
    symmetric: Annotated[bool, _opt("V ≈ H Hᵀ.", Model, "--symmetric")] = False,
    init: Annotated[str, _opt("Start; see `factorize`.", Solver)] = "auto",
    solver: Annotated[str, _opt("Algorithm; see `factorize`.", Solver)] = "auto",
    accelerator: Annotated[
        str, _opt("auto, none, any-rank, accel-r10, or a weights file.", Solver)
    ] = "auto",
    max_iter: Annotated[
        int | None, _opt("Iterations at most: 500, or as a run that is continued began.", Solver)
    ] = None,
    tol: Annotated[
        float, _opt("Relative error that may be left ungained; 0: none.", Solver)
    ] = 1e-4,
    time_limit: Annotated[float | None, _opt("Seconds for each rank.", Solver)] = None,
    device: Annotated[str | None, _opt("cpu, cuda, cuda:1, …", Solver)] = None,
    seed: Annotated[int, _opt("Seed of the random choices.", Solver)] = 0,
    n_init: Annotated[
        int, _opt("Runs of each rank from different starts; the best is kept.", Solver)
    ] = 1,
    scale: Annotated[
        str,
        _opt(
            "balanced, or sum: components that sum to 1, used in the units of the data "
            "(signatures and exposures).",
            Model,
        ),
    ] = "balanced",
    repeats: Annotated[
        int | None, _opt("Runs from random starts: keep what they agree on, and how far.", Trust)
    ] = None,
    resample: Annotated[
        str | None,
        _opt(
            "New data for each of the --repeats: poisson (counts), bootstrap (samples, with "
            "replacement) or none; by default poisson for counts under kl, else bootstrap.",
            Trust,
        ),
    ] = None,
    holdout: Annotated[
        float | None, _opt("Share of entries to hide, such as 0.1; tell their error.", Trust)
    ] = None,
    compare: Annotated[
        Path | None,
        _opt("Table of reference components: tell which is which, by their cosines.", Trust),
    ] = None,
    memory_limit: Annotated[
        str | None, _opt("Bytes, or 4GB: larger files are read in blocks of rows.", Data)
    ] = None,
) -> None:
    """Factorize a file, V ≈ W Hᵀ; keep factors, trace, options and a report in a folder.

    The same command continues where it was stopped: ranks that are done are not fitted again.
    """
    from factormer.app.read import opened, read, read_beside
    from factormer.app.report import write_report
    from factormer.app.runs import FitOptions, RunFolder
    from factormer.app.runs import fit as run
    from factormer.app.runs.counts import Counts
    from factormer.app.runs.references import references
    from factormer.app.runs.resampling import resampling
    from factormer.app.runs.select import choose_rank, described, keep_choice
    from factormer.app.runs.shown import name_factors
    from factormer.app.runs.volume import with_weights
    from factormer.data.intake import as_device
    from factormer.problem.losses import as_loss
    from factormer.select.loss import select_loss

    selects, _, of = rank.partition(":") if rank.startswith("select") else ("", "", rank)
    if selects not in ("", "select"):
        parse_ranks(rank)  # which refuses it
    ranks = [] if rank == "select" else parse_ranks(of)
    if device is not None:
        as_device(device)
    said = {"layout": layout, "header": header, "index": index, "resize": resize}
    if (source := opened(file, key, memory_limit)) is not None:
        folder = out or Path("runs") / file.stem
        max_iter = _limit(max_iter, None if fresh else RunFolder(folder))
        asked = {"init": init, "solver": solver, "max_iter": max_iter, "tol": tol, "n_init": n_init}
        options = asked | {"time_limit": time_limit, "random_state": seed, "loss": _loss(loss)}
        options["accelerator"] = None if accelerator == "none" else accelerator
        needs = {"mask": mask, "weights": weights, "missing": missing, "transpose": transpose}
        needs |= {"regularize-w": regularize_w, "regularize-h": regularize_h, "layout": layout}
        needs |= {"symmetric": symmetric, "repeats": repeats, "holdout": holdout, "device": device}
        needs["resample"] = resample
        needs["scale"] = None if scale == "balanced" else scale
        needs |= {"rank select": bool(selects), "title": title, "loss select": loss == "select"}
        needs |= {"row-labels": row_labels, "column-labels": column_labels, "resize": resize}
        needs |= {"rows-are": rows_are, "columns-are": columns_are, "compare": compare}
        needs["wavelengths"] = wavelengths
        needs |= {"header or --no-header": header is not None}
        needs |= {"index or --no-index": index is not None}
        shown = {"as_json": as_json, "progress": progress, "memory_limit": memory_limit}
        shown["fresh"] = fresh
        return fit_large(file, source, ranks, folder, options=options, refused=needs, **shown)
    data = read(
        file,
        key=key,
        transpose=transpose,
        rows_are=rows_are,
        columns_are=columns_are,
        row_labels=row_labels,
        column_labels=column_labels,
        wavelengths=wavelengths,
        **said,
    )
    beside = {
        name: None if path is None else read_beside(path, said, transpose=transpose).V
        for name, path in (("mask", mask), ("weights", weights))
    }
    if layout == "ratings":
        missing = missing or "zeros"  # what nobody rated is not known
    known = None if compare is None else references(read(compare), data)
    tell = cache(lambda: None if as_json else print(data))  # before the first fit, and once
    noise = None
    if loss == "select":
        noise = select_loss(data.V, mask=beside["mask"], missing=missing, random_state=seed)
        tell()
        if not as_json:
            print(f"loss {noise.loss}: {noise.reason}")
    folder = RunFolder(out or Path("runs") / data.name)
    named_loss = _loss(loss) if noise is None else noise.loss
    before = None if fresh else folder
    max_iter = _limit(max_iter, before)
    drawn = resampling(resample, repeats, data, named_loss, missing, Counts(**beside), before)
    options = FitOptions(
        loss=named_loss,
        regularize_w=tuple(regularize_w or ()),
        regularize_h=tuple(regularize_h or ()),
        missing=missing,
        symmetric=symmetric,
        init=init,
        solver=solver,
        accelerator=None if accelerator == "none" else accelerator,
        max_iter=max_iter,
        tol=tol,
        time_limit=time_limit,
        device=device,
        seed=seed,
        n_init=n_init,
        scale=scale,
        repeats=repeats,
        resample=drawn.kind,
        holdout=holdout,
    )
    data = data if title is None else replace(data, name=title)
    choice = None
    if selects:
        choice = choose_rank(data, options, ranks or None, **beside)
        ranks = choice.candidates
    warn = cache(lambda: told.print_shares(data, options, as_json=as_json))
    options, asked = with_weights(data, options, max(ranks), **beside), options
    if not as_json:
        told.print_volume(asked, options, max(ranks))
        if drawn.reason is not None:
            print(f"--repeats: runs differ only in their starts, as {drawn.reason}")
    squares = as_loss(options.loss).is_quadratic
    bar = Bar(ranks, max_iter, time_limit, n_init, squares=squares, shown=progress)

    def begin(rank: int) -> None:
        tell()
        warn()
        bar.begin(rank)

    with bar, ended_as_interrupted(), told.compiling() as compiled:
        results = run(
            data,
            ranks,
            options,
            folder.path,
            **beside,
            selected=None if noise is None else noise.summary(),
            command=shlex.join(["factormer", *given.get()]),
            fresh=fresh,
            begin=begin,
            watch=bar.watch if bar.shown else None,
            ran=bar.ran if bar.shown else None,
        )
    if choice is not None:
        keep_choice(choice, folder.path)
    pairs = told.compare_all(results, folder, known)
    name_factors(folder)
    write_report(folder)
    sounds = told.write_sounds(file, results, folder, transposed=transpose)
    interrupted = any(not result.is_finished for result in results)
    if as_json:
        print_json(
            {
                "schema": 1,
                "run": str(folder.path),
                "report": str(folder.report),
                "data": folder.description()["data"],
                "interrupted": interrupted,
                "results": [asdict(result) for result in results],
            }
            | ({} if noise is None else {"selected_loss": noise.summary()})
            | ({} if choice is None else {"choice": described(choice)})
            | ({} if known is None else {"compared": told.as_rows(pairs), "compared_by": known.by})
        )
    else:
        tell()
        told.print_results(results, options.loss, sum(compiled, 0.0))
        told.print_trust(results, options, folder)
        told.print_pairs(pairs, known)
        told.print_advice(results, options)
        if sounds:
            print(f"sounds of components: {', '.join(map(str, sounds))}")
        print(f"report: {folder.report}")
    if interrupted:
        print("factormer: interrupted; the same command continues from here", file=sys.stderr)
        raise typer.Exit(130)


def parse_ranks(text: str) -> list[int]:
    """Ranks from "10", "2..20" (also "2-20" and "2:20") or "4,8,16"."""
    ranks: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,9})(?:(?:\.\.|-|:)([0-9]{1,9}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        shown = text if len(text) <= 40 else f"{text[:40]}…"
        if not 1 <= first <= last:
            raise ValueError(
                f"--rank is {shown!r}; it must be a number above 0 (10), a range (2..20), a list "
                "(4,8,16), select, or select:2-20"
            )
        if len(ranks) + last - first >= _RANKS:
            raise ValueError(
                f"--rank is {shown!r}, which is more than {_RANKS} ranks; choose fewer: 10,20,50"
            )
        ranks += range(first, last + 1)
    return sorted(set(ranks))


def _limit(max_iter: int | None, before: Any) -> int:
    """Return the iterations to make at most: as asked, or as the run that is continued began."""
    from factormer.app.runs import FitOptions

    if max_iter is not None or before is None or not before.is_run:
        return FitOptions.max_iter if max_iter is None else max_iter
    kept = before.in_blocks() or before.description()
    return int(kept["options"].get("max_iter", FitOptions.max_iter))


def _loss(text: str) -> str | float:
    """A loss as `factorize` takes it, from its name, its short name or a number."""
    from factormer.problem.losses import SHORT

    try:
        return float(text)
    except ValueError:
        return SHORT.get(text.lower(), text)
