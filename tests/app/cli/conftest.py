"""Files to fit, in a folder of each test's own."""

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def data_files(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    V = rng.random((30, 3)) @ rng.random((3, 16))
    np.save("data.npy", V)
    header = ",".join(["sample", *(f"gene{j}" for j in range(16))])
    rows = [",".join([f"s{i}", *map(str, row)]) for i, row in enumerate(V)]
    Path("data.csv").write_text("\n".join([header, *rows]) + "\n")
