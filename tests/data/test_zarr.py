"""Zarr stores of both formats, whatever their chunks, as arrays and on the command line."""

import json
import sys
from typing import Any

import numpy as np
import pytest

from factormer import factorize
from factormer.app.cli import main
from factormer.data.sources import source_of

M, N, R = 400, 150, 3
LIMIT = "900kB"


@pytest.fixture
def zarr() -> Any:
    return pytest.importorskip("zarr", minversion="3")


def entries():
    rng = np.random.default_rng(1)
    return rng.exponential(size=(M, R)) @ rng.exponential(size=(R, N)) + rng.random((M, N))


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("chunks", [(50, N), (70, 40), (M, 7)])
def test_a_store_is_read_as_it_is(zarr, tmp_path, zarr_format, chunks, monkeypatch):
    monkeypatch.setattr("factormer.data.sources._PIECE", 50000)  # several pieces of a block
    V = entries()
    like = {"shape": V.shape, "dtype": V.dtype, "chunks": chunks, "zarr_format": zarr_format}
    array = zarr.create_array(tmp_path / "V.zarr", **like)
    array[:] = V
    source = source_of(array)
    assert source is not None
    assert source.take is not None
    room = np.empty((M - 13, N))
    np.testing.assert_array_equal(source.take(5, M - 8, room), V[5 : M - 8])
    np.testing.assert_array_equal(source.read(5, M - 8), V[5 : M - 8])


def test_a_store_in_shards_is_read_as_it_is(zarr, tmp_path):
    V = entries()
    like = {"shape": V.shape, "dtype": V.dtype, "chunks": (20, 50), "shards": (100, 150)}
    array = zarr.create_array(tmp_path / "V.zarr", **like)
    array[:] = V
    found = factorize(zarr.open(tmp_path / "V.zarr", mode="r"), R, memory_limit=LIMIT)
    assert "beyond memory" in str(found.plan)
    assert found.rmse == pytest.approx(factorize(V, R).rmse, rel=1e-3)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_store_is_fitted_on_the_command_line(zarr, tmp_path, capsys, zarr_format):
    V = entries()
    group = zarr.open_group(tmp_path / "V.zarr", mode="w", zarr_format=zarr_format)
    for name in ("counts", "other"):
        group.create_array(name, shape=V.shape, dtype=V.dtype, chunks=(50, 50))[:] = V
    command = ["fit", str(tmp_path / "V.zarr"), "--rank", "3", "--memory-limit", LIMIT, "--json"]
    assert main([*command, "--out", str(tmp_path / "run")]) == 1
    assert "has the matrices ['counts', 'other']; choose" in capsys.readouterr().err
    assert main([*command, "--key", "counts", "--out", str(tmp_path / "run")]) == 0
    (found,) = json.loads(capsys.readouterr().out)["results"]
    assert found["rmse"] == pytest.approx(factorize(V, R).rmse, rel=1e-3)


def test_without_zarr_a_sentence_says_how_to_get_it(tmp_path, monkeypatch, capsys):
    (tmp_path / "V.zarr").mkdir()
    monkeypatch.setitem(sys.modules, "zarr", None)
    assert main(["fit", str(tmp_path / "V.zarr"), "--rank", "3"]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert said.endswith("needs zarr: pip install 'factormer[zarr]'")
