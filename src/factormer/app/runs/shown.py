"""Decisions on the page of a run: names of components, labels, which side is shown.

Kept in the run folder, so that every page made of it later is the same:

names.csv     rank, component and name; made by the page, or by hand
report.json   whether labels are left out, and whether rows and columns are swapped
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from factormer.app.runs.folder import RankResult, RunFolder, dump, write_factor
from factormer.app.runs.stored import built, load_object
from factormer.data.files import write

_HEAD = ["rank", "component", "name"]
_LONGEST = 60  # characters of a name
Names = dict[int, dict[int, str]]  # by rank and component, both from 1


@dataclass(frozen=True)
class Shown:
    """How the page of a run is made; None: as the data suggests."""

    labels: bool = True
    swap: bool | None = None


def shown(folder: RunFolder) -> Shown:
    """Return what was decided before, or nothing."""
    path = folder.path / "report.json"
    return built(Shown, load_object(path), path) if path.is_file() else Shown()


def decide(
    folder: RunFolder,
    *,
    names: Path | None = None,
    labels: bool | None = None,
    swap: bool | None = None,
) -> None:
    """Keep what is given; None leaves it as it was."""
    results = folder.results()
    if names is not None:
        write(folder.path / "names.csv", _table(read_names(names, results)))
    if labels is None and swap is None:
        return
    now = shown(folder)
    now = now if labels is None else replace(now, labels=labels)
    now = now if swap is None else replace(now, swap=swap)
    write(folder.path / "report.json", dump(asdict(now)))


def names_of(folder: RunFolder, results: Sequence[RankResult]) -> Names:
    """The names that were given to components."""
    path = folder.path / "names.csv"
    return read_names(path, results) if path.is_file() else {}


def name_factors(folder: RunFolder) -> None:
    """Write W.csv and H.csv again, with the names of components, if names are kept."""
    if not (folder.path / "names.csv").is_file():
        return
    names, axes = names_of(folder, results := folder.results()), folder.axes()
    for result in results:
        factors = folder.factors(result.rank)
        for name, axis in zip("WH", axes, strict=True):
            path = folder.rank(result.rank) / f"{name}.csv"
            write_factor(path, factors[name], axis, names.get(result.rank))


def read_names(path: Path, results: Sequence[RankResult]) -> Names:
    """A table of rank, component and name, each of a component that the run has."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text; save it as UTF-8") from error
    head, *rows = list(csv.reader(io.StringIO(text))) or [[]]
    if [cell.strip().lower() for cell in head] != _HEAD:
        raise ValueError(
            f"{path} begins with {','.join(head)[:40]!r}; its first line must be "
            f"{','.join(_HEAD)}, as in the file that the report saves"
        )
    found: Names = {}
    ranks = [result.rank for result in results]
    for line, row in enumerate(rows, start=2):
        if not any(cell.strip() for cell in row):
            continue
        rank, component, name = (cell.strip() for cell in (*row, "", "", "")[:3])
        if not rank.isdecimal() or int(rank) not in ranks:
            fitted = ", ".join(map(str, ranks))
            raise ValueError(f"{path}, line {line}: rank is {rank!r:.20}; the run has {fitted}")
        if not component.isdecimal() or not 1 <= int(component) <= int(rank):
            raise ValueError(
                f"{path}, line {line}: component is {component!r:.20}; it must be 1 to {rank}"
            )
        if len(name) > _LONGEST or len(row) > len(_HEAD):
            raise ValueError(
                f"{path}, line {line}: the name is longer than {_LONGEST} characters or has a "
                "comma outside quotes; shorten or quote it"
            )
        if name:
            found.setdefault(int(rank), {})[int(component)] = name
    return found


def _table(names: Names) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_HEAD)
    writer.writerows((rank, c, names[rank][c]) for rank in sorted(names) for c in names[rank])
    return text.getvalue()
