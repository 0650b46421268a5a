"""A run on disk: open formats, written so that a killed run leaves only complete files.

run.json            options, data, versions and machine
axes.json           what rows and columns of V stand for
data.npz            the SVD bound, where there is one
choice.json, .png   how the rank was chosen, where it was
rank-10/            factors.npz, W.csv, H.csv, trace.csv, views.npz, result.json; of several runs
                    also consensus.npz and stability.csv
rank-10.point.npz   the current point of a fit, and its trace; removed when the fit is done
rank-10.runs/       runs of which the best will be kept, a sweep; likewise
report.html         the page
names.csv, report.json   names of components, and how the page is made, where somebody decided

Of data beyond memory (`large.py`), run.json has results too, rank-10/ W.npy, H.npy and trace.csv.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from factormer.app.read import Axis
from factormer.app.runs.result import RankResult as RankResult
from factormer.app.runs.stored import (
    built,
    check_trace,
    damaged,
    load_arrays,
    load_factors,
    load_in_blocks,
    load_object,
    load_run,
    load_trace,
)
from factormer.data.files import check_place, replacing, unwritten, write
from factormer.data.journal import forget_passes
from factormer.data.locks import held

# What a run that was killed leaves of a file that it was writing; see `replacing`.
_WRITTEN = r"\.run|[a-z]+\.json|data\.npz|report\.html|names\.csv|rank-\d+\.point\.npz"
_LEFT = rf"\.({_WRITTEN})\.[0-9a-f]{{8}}\.new"
PASSES = ".passes"  # folder of passes over data beyond memory, until the fit is done
_FILES = ("run.json", "axes.json", "data.npz", "choice.json", "choice.png")
_FILES += ("report.html", "report.json", "names.csv")


@dataclass(frozen=True)
class RunFolder:
    """A folder that keeps a run."""

    path: Path

    @property
    def report(self) -> Path:
        """The page."""
        return self.path / "report.html"

    @property
    def is_run(self) -> bool:
        """Whether a run was started here."""
        return (self.path / "run.json").is_file()

    def rank(self, rank: int) -> Path:
        """The folder of one rank."""
        return self.path / f"rank-{rank}"

    def results(self) -> list[RankResult]:
        """Return the results of all ranks that were fitted, lowest first."""
        paths = self.path.glob("rank-*/result.json")
        found = [_result(path) for path in paths]
        return sorted(found, key=lambda result: result.rank)

    def is_begun(self) -> bool:
        """Whether something was fitted here, at least in part."""
        signs = ("rank-*/result.json", "rank-*.point.npz", "rank-*.runs")
        return any(any(self.path.glob(sign)) for sign in signs)

    def description(self) -> dict[str, Any]:
        """The contents of run.json, which every run has."""
        path = self.path / "run.json"
        if not self.is_run:
            raise FileNotFoundError(
                f"{self.path} holds no run: there is no {path.name} in it; choose a folder that "
                "`factormer fit` has made"
            )
        return load_run(path)

    def in_blocks(self) -> dict[str, Any] | None:
        """The contents of run.json if the run is of data beyond memory."""
        return load_in_blocks(self.path / "run.json") if self.is_run else None

    def axes(self) -> tuple[Axis, Axis]:
        """Rows and columns of V."""
        path = self.path / "axes.json"
        stored = load_object(path, rows=dict, columns=dict)
        return built(Axis, stored["rows"], path), built(Axis, stored["columns"], path)

    def bound(self) -> Float[np.ndarray, " k"] | None:
        """The SVD bound by rank, where it was kept."""
        path = self.path / "data.npz"
        if not path.is_file():
            return None
        bound = load_arrays(path, "svd_bound")["svd_bound"]
        if bound.ndim != 1:
            raise damaged(path, f"holds a bound of shape {bound.shape}, not a vector")
        return bound

    def arrays(self, *parts: str) -> dict[str, np.ndarray]:
        """The arrays of one of its .npz files."""
        return load_arrays(self.path.joinpath(*parts))

    def factors(self, rank: int) -> dict[str, np.ndarray]:
        """W and H."""
        return load_factors(self.rank(rank) / "factors.npz", rank)

    def views(self, rank: int, *names: str) -> dict[str, np.ndarray]:
        """Return what the page shows of a fit; it must contain these names."""
        return load_arrays(self.rank(rank) / "views.npz", *names)

    def consensus(self, rank: int) -> dict[str, np.ndarray] | None:
        """Return what is kept of several runs of a rank, if they were made."""
        path = self.rank(rank) / "consensus.npz"
        names = ("matrix", "samples", "order", "cophenetic", "kept", "errors")
        return load_arrays(path, *names) if path.is_file() else None

    def choice(self) -> dict[str, Any] | None:
        """How the rank was chosen, if it was."""
        path = self.path / "choice.json"
        kinds = {"rank": int, "reason": str, "probabilities": dict, "criteria": dict}
        return load_object(path, clear=bool, **kinds) if path.is_file() else None

    def trace(self, rank: int) -> Float[np.ndarray, "t 4"]:
        """Iteration, seconds, rmse and objective."""
        return load_trace(self.rank(rank) / "trace.csv")

    def begin(self, description: dict[str, Any], rows: Axis, columns: Axis) -> None:
        """Describe the run, before the first fit."""
        write(self.path / "axes.json", dump({"rows": asdict(rows), "columns": asdict(columns)}))
        write(self.path / "run.json", dump(description))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder if it is missing, and lock it against other runs."""
        with held(self.path):
            self._recover()
            yield

    def _recover(self) -> None:
        """Refuse other files, and restore a rank that was being replaced when a run was killed."""
        for path in [*map(self.path.joinpath, _FILES), *self.path.glob("rank-[0-9]*")]:
            if path.is_symlink() or not path.is_dir() or path.name in _FILES:
                check_place(path)
        for path in self.path.glob(".*.new"):
            if re.fullmatch(_LEFT, path.name):
                path.unlink(missing_ok=True)
        for old in self.path.glob(".rank-[0-9]*.old"):
            place = self.path / old.name.removeprefix(".").removesuffix(".old")
            if not place.exists():
                old.rename(place)

    def clear(self) -> None:
        """Remove the files of a run, and nothing else."""
        if not self.is_run:
            return
        for path in [*self.path.glob("rank-[0-9]*"), *self.path.glob(".rank-[0-9]*")]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        forget_passes(self.path / PASSES)
        for name in _FILES:
            (self.path / name).unlink(missing_ok=True)

    def taken(self) -> str | None:
        """A file, not of a run, that a run here would overwrite, if there is one."""
        if self.is_run:
            return None
        return next((name for name in _FILES if os.path.lexists(self.path / name)), None)

    def keep(
        self,
        result: RankResult,
        *,
        factors: dict[str, np.ndarray],
        views: dict[str, np.ndarray],
        trace: Float[np.ndarray, "t 4"],
        axes: tuple[Axis, Axis],
        consensus: dict[str, np.ndarray] | None = None,
    ) -> None:
        """Write all files of one rank to a temporary folder, then move it into place."""
        place = self.rank(result.rank)
        new, old = (place.with_name(f".{place.name}.{word}") for word in ("new", "old"))
        for path in (new, old):
            shutil.rmtree(path, ignore_errors=True)
        try:
            new.mkdir(parents=True)
            write_arrays(new / "factors.npz", **factors)
            write_arrays(new / "views.npz", **views)
            for name, axis in zip("WH", axes, strict=True):
                write_factor(new / f"{name}.csv", factors[name], axis)
            if consensus is not None:
                write_arrays(new / "consensus.npz", **consensus)
                columns = (
                    _components(result.rank),
                    result.shares,
                    consensus["stability"],
                    consensus["cosine"],
                )
                table = ([c, *map(_text, row)] for c, *row in zip(*columns, strict=True))
                head = ["component", "share", "stability", "cosine"]
                write(new / "stability.csv", _csv(head, table))
            table = ([int(row[0]), *map(_text, row[1:])] for row in trace.tolist())
            write(new / "trace.csv", _csv(["iteration", "seconds", "rmse", "objective"], table))
            write(new / "result.json", dump(asdict(result)))
            _exchange(place, new, old)
        except OSError as error:
            shutil.rmtree(new, ignore_errors=True)
            if error.strerror is None:  # a sentence that names the file
                raise
            raise unwritten(place, error) from error
        shutil.rmtree(old, ignore_errors=True)
        self._point(result.rank).unlink(missing_ok=True)
        if result.is_finished:
            self.forget_runs(result.rank)

    def runs(self, rank: int) -> Path:
        """Return the folder of those runs of a rank of which the best is its result."""
        return self.path / f"rank-{rank}.runs"

    def forget_runs(self, rank: int) -> None:
        """Remove them."""
        shutil.rmtree(self.runs(rank), ignore_errors=True)

    def _point(self, rank: int) -> Path:
        return self.path / f"rank-{rank}.point.npz"

    def keep_point(
        self,
        rank: int,
        W: Float[np.ndarray, "m r"],
        H: Float[np.ndarray, "n r"],
        trace: Float[np.ndarray, "t 4"],
    ) -> None:
        """Save the current point of a fit, atomically, over the last one."""
        write_arrays(self._point(rank), W=W, H=H, trace=trace)

    def point(self, rank: int) -> dict[str, np.ndarray] | None:
        """W, H and trace to continue from: of a fit that was killed or interrupted."""
        if (path := self._point(rank)).is_file():
            point = load_factors(path, rank)
            return point | {"trace": check_trace(point.get("trace", np.empty(0)), path)}
        if not (self.rank(rank) / "result.json").is_file():
            return None
        return self.factors(rank) | {"trace": self.trace(rank)}


def _result(path: Path) -> RankResult:
    """A result.json, in the folder of its own rank."""
    result = built(RankResult, load_object(path), path)
    if path.parent.name != f"rank-{result.rank}" or len(result.shares) != result.rank:
        raise damaged(path, f"is of rank {result.rank}, with {len(result.shares)} shares")
    return result


def _exchange(place: Path, new: Path, old: Path) -> None:
    """Replace one folder by another; if that fails, restore the first."""
    if place.exists():
        place.rename(old)
    try:
        new.rename(place)
    except OSError:
        if old.exists():
            old.rename(place)
        raise


def write_arrays(path: Path, **arrays: np.ndarray) -> None:
    """An .npz file, whole or not at all."""
    with replacing(path) as file:
        np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]


def write_factor(
    path: Path, F: Float[np.ndarray, "k r"], axis: Axis, names: Mapping[int, str] | None = None
) -> None:
    """A factor as a table: a row for each entry of the axis, a column for each component.

    `names` are those that components were given, by their number from 1.
    """
    table = ([axis.name(i), *map(_text, row)] for i, row in enumerate(F.tolist()))
    head = _components(F.shape[1])
    for c, name in (names or {}).items():
        head[c - 1] += f": {name}"
    write(path, _csv([axis.noun, *head], table))


def _components(rank: int) -> list[str]:
    return [f"component {c + 1}" for c in range(rank)]


def dump(value: Any) -> str:
    """JSON for every reader: null for NaN and infinity."""
    return json.dumps(finite(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def finite(value: Any) -> Any:
    """Return the value with None for NaN and infinity."""
    if isinstance(value, Mapping):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def _text(number: float) -> str:
    return f"{number:.8g}"
