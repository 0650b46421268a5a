"""reproduce(): make figures, their numbers, the manifest and RESULTS.md in a folder."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from factormer.data.files import write
from factormer.datasets.images import data_folder, load_jasper, load_yale
from factormer.run.provenance import provenance
from factormer_lab.paper.reproduce import style
from factormer_lab.paper.reproduce.drawings import (
    derivation_figure,
    example_figure,
    koenig_figure,
    models_figure,
)
from factormer_lab.paper.reproduce.measure import compact, rounded
from factormer_lab.paper.reproduce.optimum import optimum
from factormer_lab.paper.reproduce.real import faces, histogram, real
from factormer_lab.paper.reproduce.results import write_results
from factormer_lab.paper.reproduce.synthetic import ablation, synthetic
from factormer_lab.paper.reproduce.training import training

LOADERS: dict[str, Callable[[Path], Tensor]] = {"yale": load_yale, "jasper": load_jasper}


@dataclass(frozen=True)
class Recipe:
    """How to make a figure from the real matrices it needs: its numbers, and the drawing."""

    make: Callable[[dict[str, Tensor]], tuple[dict[str, Any], Any]]
    needs: tuple[str, ...] = ()
    again: Callable[..., tuple[dict[str, Any], Any]] | None = None  # with networks, stored numbers
    withheld: str = ""  # what stands in place of the picture if images of the data are left out


_NO_IMAGES = (
    "The panels of `yale` and `jasper` with components as images, and the figure of the faces, are "
    "left out: the terms of these data do not let us publish them. `factormer reproduce yale "
    "jasper faces --data DIR` draws them from your copies; the numbers of the faces are in "
    "`faces.json`."
)


def _set(name: str) -> Recipe:
    return Recipe(lambda _: synthetic(name), again=lambda _, **how: synthetic(name, **how))


def _real(name: str) -> Recipe:
    again = partial(_again, name)
    return Recipe(lambda V: real(name, V[name]), (name,), again)


def _again(name: str, V: dict[str, Tensor], **how: Any) -> tuple[dict[str, Any], Any]:
    return real(name, V[name], images=False, **how)


FIGURES = {
    "koenig": Recipe(lambda _: koenig_figure()),
    "example": Recipe(lambda _: example_figure()),
    "derivation": Recipe(lambda _: derivation_figure()),
    "models": Recipe(lambda _: models_figure()),
    "training": Recipe(lambda _: training()),
    "histogram": Recipe(histogram, ("yale", "jasper")),
    "synthetic-small": _set("small"),
    "synthetic-large": _set("large"),
    "yale": _real("yale"),
    "jasper": _real("jasper"),
    "faces": Recipe(lambda V: faces(V["yale"]), ("yale",), withheld=_NO_IMAGES),
    "ablation": Recipe(lambda _: ablation()),
    "optimum": Recipe(optimum, ("yale", "jasper"), optimum),
}


def reproduce(
    figures: Sequence[str] | None = None,
    *,
    data: Path | None,
    out: Path,
    only: Sequence[str] = (),
    images: bool = True,
    report: Callable[[str], object] = lambda text: None,
) -> Path:
    """Make figures in the folder `out` and return the path of the RESULTS.md written there.

    A figure is NAME.png and NAME.json, its numbers. Figures can be made one by one: RESULTS.md is
    written from the JSON files present. By default all are made, but for those whose real matrices
    are not in `data` (or in the folder FACTORMER_DATA names), which are reported and left out. One
    that is asked for by name must be possible; that is checked before any time is spent.

    With `only`, names of networks, figures that compare contestants are made again for those and
    AO-ADMM, and the others keep the numbers in the folder. Without `images`, nothing shows the real
    data: their terms do not let everyone publish it.
    """
    names = list(dict.fromkeys(figures or FIGURES))
    if unknown := [name for name in names if name not in FIGURES]:
        raise ValueError(f"there is no figure {unknown[0]!r}; choose among {', '.join(FIGURES)}")
    style.check_matplotlib()
    matrices = _load(names, data, report if not figures else None)
    names = [name for name in names if all(need in matrices for need in FIGURES[name].needs)]
    out.mkdir(parents=True, exist_ok=True)
    options = [f"--only {name}" for name in only] + ([] if images else ["--without-images"])
    made_with = {
        "command": " ".join(["factormer", "reproduce", *(figures or []), *options]),
        **provenance(),
    }
    for name in names:
        started = time.perf_counter()
        recipe, path = FIGURES[name], out / f"{name}.json"
        stored = json.loads(path.read_text(encoding="utf-8")) if only and path.is_file() else None
        entry: dict[str, Any] = {}
        if recipe.again is not None and (stored or not images):
            how = {"only": only, "stored": stored} if stored else {}
            numbers, drawing = recipe.again(matrices, **how)
            entry = {"only": list(only)} if stored else {}
        else:
            numbers, drawing = recipe.make(matrices)
        if recipe.withheld and not images:
            entry["withheld"] = recipe.withheld
        else:
            style.save(drawing, out / f"{name}.png")
        seconds = time.perf_counter() - started
        _write(path, {"figure": name, **numbers, "seconds": seconds})
        _note(out / "manifest.json", name, {"seconds": seconds, **entry, **made_with})
        report(f"{name}: {seconds:.1f} s")
    return write_results(out, list(FIGURES))


def _load(
    names: Sequence[str], data: Path | None, report: Callable[[str], object] | None
) -> dict[str, Tensor]:
    """The real matrices that the figures need; without `report`, a missing one is an error."""
    matrices = {}
    for need in dict.fromkeys(need for name in names for need in FIGURES[name].needs):
        try:
            matrices[need] = LOADERS[need](data_folder(data))
        except FileNotFoundError as error:
            if report is None:
                raise
            without = ", ".join(name for name in names if need in FIGURES[name].needs)
            report(f"left out {without}: {error}")
    return matrices


def _note(path: Path, name: str, entry: dict[str, Any]) -> None:
    """Add a figure to the manifest, in place of an older entry of that name."""
    made = json.loads(path.read_text(encoding="utf-8"))["figures"] if path.is_file() else {}
    made = {n: entry if n == name else made[n] for n in FIGURES if n == name or n in made}
    _write(path, {"figures": made})


def _write(path: Path, contents: dict[str, Any]) -> None:
    """Write JSON, completely or not at all."""
    write(path, compact(rounded(contents)) + "\n")
