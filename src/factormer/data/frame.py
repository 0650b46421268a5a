"""Tables for people: pandas is imported where one is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def frame_of(columns: Mapping[str, np.ndarray], name: str = "table()") -> Any:
    """A pandas DataFrame of what `columns()` gives; `name` is what was asked for."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError(
            f"{name} needs pandas: pip install pandas; columns() has the same as arrays"
        ) from error
    return pandas.DataFrame(columns)
