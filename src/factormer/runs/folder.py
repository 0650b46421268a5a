"""A run on disk: open formats, written so that a killed run leaves whole files alone.

run.json            what was asked, of which data, and with what it was made
axes.json           what rows and columns of V stand for
data.npz            the SVD bound, where there is one
rank-10/            factors.npz, W.csv, H.csv, trace.csv, views.npz, result.json
rank-10.point.npz   where a fit stands, and its trace; gone when the fit is done
report.html         the page
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from factormer.read import Axis

try:
    import fcntl
except ImportError:  # Windows, where two runs in one folder are not noticed
    fcntl = None


@dataclass(frozen=True, kw_only=True)
class RankResult:
    """How the fit of one rank ended; errors are those of W Hᵀ over the known entries of V."""

    rank: int
    status: str
    message: str
    iterations: int
    seconds: float
    objective: float
    rmse: float
    relative_error: float
    explained: float
    svd_rmse: float | None
    shares: list[float]

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing left to do for this rank."""
        return self.status != "INTERRUPTED"


@dataclass(frozen=True)
class RunFolder:
    """Where a run is kept."""

    path: Path

    @property
    def report(self) -> Path:
        """The page."""
        return self.path / "report.html"

    def rank(self, rank: int) -> Path:
        """The folder of one rank."""
        return self.path / f"rank-{rank}"

    def results(self) -> list[RankResult]:
        """Those of all ranks that were fitted, lowest first."""
        found = [RankResult(**_load(p)) for p in self.path.glob("rank-*/result.json")]
        return sorted(found, key=lambda result: result.rank)

    def is_begun(self) -> bool:
        """Whether there is something that was fitted here, in part at least."""
        return any(self.path.glob("rank-*/result.json")) or any(self.path.glob("rank-*.point.npz"))

    def description(self) -> dict[str, Any]:
        """run.json, which a run cannot do without."""
        path = self.path / "run.json"
        if not path.is_file():
            raise FileNotFoundError(
                f"{self.path} holds no run: there is no {path.name} in it; name a folder that "
                "`factormer fit` has made"
            )
        return _load(path)

    def axes(self) -> tuple[Axis, Axis]:
        """Rows and columns of V."""
        stored = _load(self.path / "axes.json")
        rows, columns = (Axis(**_tuples(stored[side])) for side in ("rows", "columns"))
        return rows, columns

    def arrays(self, *parts: str) -> dict[str, np.ndarray]:
        """The arrays of one of its .npz files."""
        with np.load(self.path.joinpath(*parts), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}

    def trace(self, rank: int) -> Float[np.ndarray, "t 4"]:
        """Iteration, seconds, rmse and objective."""
        path = self.rank(rank) / "trace.csv"
        return np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2)

    def begin(self, description: dict[str, Any], rows: Axis, columns: Axis) -> None:
        """Describe the run, before the first fit."""
        write(self.path / "axes.json", dump({"rows": asdict(rows), "columns": asdict(columns)}))
        write(self.path / "run.json", dump(description))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder if need be, and keep other runs out of it meanwhile."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write(self.path / ".run", "")
            (self.path / ".run").unlink()
        except OSError as error:
            raise OSError(
                f"{self.path} cannot hold a run ({error.strerror}); choose another --out"
            ) from error
        if fcntl is None:
            yield
            return
        handle = os.open(self.path, os.O_RDONLY)
        try:
            if not _locks(handle):
                raise ValueError(
                    f"another run is at work in {self.path}; wait for it, or choose another --out"
                )
            yield
        finally:
            os.close(handle)  # which lets others in, as the end of the process does

    def clear(self) -> None:
        """Remove what a run has made here, and nothing else; nothing where there was none."""
        if not (self.path / "run.json").is_file():
            return
        for path in [*self.path.glob("rank-[0-9]*"), *self.path.glob(".rank-[0-9]*")]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for name in ("run.json", "axes.json", "data.npz", "report.html"):
            (self.path / name).unlink(missing_ok=True)

    def taken(self) -> str | None:
        """A file of someone else's that a run here would write over, if there is one."""
        if (self.path / "run.json").is_file():
            return None
        names = ("axes.json", "data.npz", "report.html")
        return next((name for name in names if (self.path / name).exists()), None)

    def keep(
        self,
        result: RankResult,
        *,
        factors: dict[str, np.ndarray],
        views: dict[str, np.ndarray],
        trace: Float[np.ndarray, "t 4"],
        axes: tuple[Axis, Axis],
    ) -> None:
        """Write all of one rank beside its place, then move it there at once."""
        place = self.rank(result.rank)
        new, old = (place.with_name(f".{place.name}.{word}") for word in ("new", "old"))
        for path in (new, old):
            shutil.rmtree(path, ignore_errors=True)
        new.mkdir(parents=True)
        np.savez(new / "factors.npz", **factors)  # pyright: ignore[reportArgumentType]
        np.savez(new / "views.npz", **views)  # pyright: ignore[reportArgumentType]
        names = [f"component {c + 1}" for c in range(result.rank)]
        for name, axis in zip("WH", axes, strict=True):
            table = (
                [axis.name(i), *map(_text, row)] for i, row in enumerate(factors[name].tolist())
            )
            (new / f"{name}.csv").write_text(_csv([axis.noun, *names], table), encoding="utf-8")
        rows = ([int(row[0]), *map(_text, row[1:])] for row in trace.tolist())
        text = _csv(["iteration", "seconds", "rmse", "objective"], rows)
        (new / "trace.csv").write_text(text, encoding="utf-8")
        (new / "result.json").write_text(dump(asdict(result)), encoding="utf-8")
        if place.exists():
            place.rename(old)
        new.rename(place)
        shutil.rmtree(old, ignore_errors=True)
        self._point(result.rank).unlink(missing_ok=True)

    def _point(self, rank: int) -> Path:
        return self.path / f"rank-{rank}.point.npz"

    def keep_point(
        self,
        rank: int,
        W: Float[np.ndarray, "m r"],
        H: Float[np.ndarray, "n r"],
        trace: Float[np.ndarray, "t 4"],
    ) -> None:
        """Write where a fit stands, whole, in place of where it stood before."""
        write_arrays(self._point(rank), W=W, H=H, trace=trace)

    def point(self, rank: int) -> dict[str, np.ndarray] | None:
        """W, H and trace to go on from: of a fit that was killed, or interrupted."""
        if self._point(rank).is_file():
            return self.arrays(self._point(rank).name)
        if not (self.rank(rank) / "result.json").is_file():
            return None
        return self.arrays(f"rank-{rank}", "factors.npz") | {"trace": self.trace(rank)}


def _locks(handle: int) -> bool:
    """Whether nobody else has locked it."""
    assert fcntl is not None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write(path: Path, content: str | bytes) -> None:
    """Put a file in place whole, or not at all."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_bytes(content.encode() if isinstance(content, str) else content)
    os.replace(beside, path)


def write_arrays(path: Path, **arrays: np.ndarray) -> None:
    """The same for arrays."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    write(path, buffer.getvalue())


def dump(value: Any) -> str:
    """JSON that every reader takes: null for what is not a number, or is infinite."""
    return json.dumps(_finite(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def _text(number: float) -> str:
    return f"{number:.8g}"


def _load(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON ({error}); make the run anew") from error


def _tuples(options: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
