"""Tables: a DataFrame where there is pandas, and a sentence where there is none."""

import sys

import numpy as np
import pytest

from factormer.data.frame import frame_of


def test_columns_become_a_frame():
    pytest.importorskip("pandas")
    frame = frame_of({"rank": np.arange(2), "error": np.array([1.0, 0.5])})
    assert list(frame) == ["rank", "error"]
    assert frame["error"].tolist() == [1.0, 0.5]


def test_without_pandas_the_remedy_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"table needs pandas.*columns\(\) has the same"):
        frame_of({}, "table")
