"""Tables for people: pandas is imported where one is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor


def frame_of(columns: Mapping[str, np.ndarray], name: str = "table()") -> Any:
    """A pandas DataFrame of what `columns()` gives; `name` is what was asked for."""
    return _pandas(name, "columns() has the same as arrays").DataFrame(columns)


@dataclass(frozen=True, eq=False)
class Labelled:
    """How to return results where V is a DataFrame: as numpy arrays, with its labels kept."""

    rows: Any
    columns: Any

    def __call__(self, tensor: Tensor) -> np.ndarray:
        """Return the numbers as a numpy array."""
        return tensor.numpy(force=True)

    @staticmethod
    def of(V: Any) -> Labelled | None:
        """The labels of a DataFrame, pandas' or one like it; None where V is something else."""
        if not (hasattr(V, "to_numpy") and hasattr(V, "columns")):
            return None
        return Labelled(getattr(V, "index", None), V.columns)


class Frames(NamedTuple):
    """W and H as DataFrames, a column for each component."""

    W: Any
    H: Any


def frames_of(W: Tensor, H: Tensor, as_given: Any) -> Frames:
    """W with the rows of V, and H with its columns; labelled as V was, if it was a DataFrame."""
    if W.dim() > 2:
        raise ValueError(
            f"W has shape {tuple(W.shape)}, of a stack of matrices; frames() is for one: make "
            "DataFrames of the members of W and H"
        )
    pandas, labels = _pandas("frames()", "W and H are arrays"), (None, None)
    if isinstance(as_given, Labelled):
        labels = (as_given.rows, as_given.columns)
    names = pandas.RangeIndex(W.shape[1], name="component")
    return Frames(
        *(
            pandas.DataFrame(F.detach().cpu().numpy(), index=index, columns=names)
            for F, index in zip((W, H), labels, strict=True)
        )
    )


def _pandas(name: str, instead: str) -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError(f"{name} needs pandas: pip install pandas; {instead}") from error
    return pandas
