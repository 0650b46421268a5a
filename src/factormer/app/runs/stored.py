"""Read back what a run wrote: complete and of the right types, or an error that names the file."""

from __future__ import annotations

import math
import warnings
from dataclasses import MISSING, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from factormer.data.files import parsed

SCHEMA = 1  # of run folders; runs without one in run.json have the first
_REMEDY = "fit again, with --fresh or another --out"
Kind = TypeVar("Kind")


def damaged(path: Path, what: str) -> ValueError:
    """The error for a file that is not as a run left it."""
    return ValueError(f"{path} {what}; {_REMEDY}")


def load_object(path: Path, **kinds: Any) -> dict[str, Any]:
    """The JSON object in a file, which has these parts at least."""
    try:
        found = parsed(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise damaged(path, "is not there") from error
    except ValueError as error:
        raise damaged(path, f"is not valid JSON ({error})") from error
    if not isinstance(found, dict):
        raise damaged(path, "is not a JSON object")
    for name, kind in kinds.items():
        if not fits(found.get(name), kind):
            raise damaged(path, f"lacks {name!r}, or has it with a wrong type")
    return found


def load_in_blocks(path: Path) -> dict[str, Any] | None:
    """The run.json of a run on data beyond memory; None if it is of another run."""
    run = load_object(path)
    if (schema := run.get("schema", 1)) != SCHEMA:
        raise ValueError(
            f"{path} has schema {schema!r}, and this version of factormer reads schema {SCHEMA}; "
            "use the version that wrote it, or a later one"
        )
    if "passes_over" not in run:
        return None
    return load_object(path, passes_over=dict, options=dict, shape=list, results=list)


def load_run(path: Path) -> dict[str, Any]:
    """The run.json of a run on data in memory; one on data beyond it is refused."""
    if load_in_blocks(path) is not None:
        raise ValueError(
            f"{path.parent} holds a run in blocks, of data beyond memory, which has no report; "
            "choose another run, or load W.npy and H.npy of its ranks"
        )
    run = load_object(path, data=dict, options=dict, made_with=dict, command=str)
    if not all(isinstance(run["data"].get(name), str) for name in ("name", "checksum")):
        raise damaged(path, "does not name its data")
    return run


def built(kind: type[Kind], values: Any, path: Path) -> Kind:
    """A dataclass from the object of a JSON file, whose parts must have its types."""
    if not isinstance(values, dict):
        raise damaged(path, f"holds {type(values).__name__} and not an object")
    hints, given = get_type_hints(kind), {}
    for field in fields(kind):  # pyright: ignore[reportArgumentType]
        if field.name not in values:
            if field.default is MISSING:
                raise damaged(path, f"lacks {field.name!r}")
            continue
        value = given[field.name] = _restored(values[field.name], hints[field.name])
        if not fits(value, hints[field.name]):
            raise damaged(path, f"has {field.name!r} of a wrong type ({value!r:.40})")
    if more := values.keys() - given.keys():
        raise damaged(path, f"has unknown parts: {sorted(more)}")
    try:
        return kind(**given)
    except ValueError as error:
        raise damaged(path, f"does not fit together ({error})") from error


def _restored(value: Any, hint: Any) -> Any:
    """Restore what JSON cannot write: NaN, infinity and tuples."""
    if hint is float and value is None:
        return math.nan
    if isinstance(value, list) and list[float] in (hint, *get_args(hint)):
        return [_restored(part, float) for part in value]
    tuples = any(get_origin(part) is tuple for part in (hint, *get_args(hint)))
    return tuple(value) if isinstance(value, list) and tuples else value


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return any(fits(value, part) for part in parts)
    if origin is list:
        return isinstance(value, list) and all(fits(item, parts[0]) for item in value)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        kinds = parts[:1] * len(value) if parts[-1] is ... else parts
        return len(kinds) == len(value) and all(map(fits, value, kinds))
    if hint in (int, float):
        return isinstance(value, int | hint) and not isinstance(value, bool)
    return isinstance(value, NoneType if hint is None else hint)


def load_arrays(path: Path, *names: str) -> dict[str, np.ndarray]:
    """The arrays of an .npz file, among which are these."""
    if not path.is_file():
        raise damaged(path, "is not there")
    try:
        with path.open("rb") as source, np.load(source, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name]) for name in file.files}
    except MemoryError:
        raise
    except Exception as error:  # of zip, zlib, struct and numpy; cut files look like pickles
        raise damaged(path, "is cut short or damaged") from error
    for name in names:
        if name not in arrays or arrays[name].dtype.kind not in "biuf":
            raise damaged(path, f"has no array {name!r} of numbers")
    return arrays


def load_factors(path: Path, rank: int) -> dict[str, np.ndarray]:
    """W and H of a rank, and what is stored with them."""
    arrays = load_arrays(path, "W", "H")
    for name in "WH":
        F = arrays[name]
        if F.ndim != 2 or F.shape[1] != rank or not np.isfinite(F).all():
            raise damaged(path, f"holds {name} of shape {F.shape}, not finite numbers of {rank} "
                          "components")  # fmt: skip
    return arrays


def load_factor(path: Path, rank: int) -> np.ndarray:
    """A factor of a rank, from an .npy file."""
    if not path.is_file():
        raise damaged(path, "is not there")
    try:
        F = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise damaged(path, "is cut short or damaged") from error
    if F.dtype.kind != "f" or F.ndim != 2 or F.shape[1] != rank or not np.isfinite(F).all():
        raise damaged(path, f"holds {F.dtype} of shape {F.shape}, not {rank} components")
    return F


def check_trace(trace: np.ndarray, path: Path) -> np.ndarray:
    """Rows of iteration, seconds, rmse and objective."""
    if trace.ndim != 2 or trace.shape[1:] != (4,) or not len(trace):
        raise damaged(path, f"holds a trace of shape {trace.shape}, not of four columns")
    if not np.isfinite(trace[:, :2]).all():
        raise damaged(path, "holds a trace with iterations or seconds that are not finite")
    return trace


def load_trace(path: Path) -> np.ndarray:
    """The rows of a trace.csv."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of an empty file
            trace = np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2)
    except FileNotFoundError as error:
        raise damaged(path, "is not there") from error
    except (ValueError, UserWarning) as error:
        raise damaged(path, "is not a table of numbers") from error
    return check_trace(trace, path)
