"""Blocks that travel to a device, of which the CPU is one: answers as those of blocks that stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from factormer import NMF, factorize, factorize_many
from factormer.data import Dense, parts
from factormer.data.factors import Factors
from factormer.data.intake import brought
from factormer.data.memory import as_bytes, bytes_on
from factormer.data.outofcore import blocks_of
from factormer.data.sources import array_source
from factormer.data.staging import There

CPU = torch.device("cpu")
LIMIT = "300kB"


def entries(m: int = 220, n: int = 130, dtype: Any = np.float64) -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.random((m, 4)) @ rng.random((4, n)) + 0.05 * rng.random((m, n))).astype(dtype)


def sent(V: Any, limit: Any = LIMIT) -> Any:
    """Blocks that travel to the CPU, of which a limit pretends that it is small."""
    source = array_source(V)
    assert source is not None
    return blocks_of(source, limit, sent_to=CPU)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy, np.asfortranarray])
def test_products_are_those_of_the_matrix(dtype, kind, rng):
    V = entries(dtype=dtype)
    blocks, dense = sent(kind(V)), Dense(torch.from_numpy(V))
    assert len(blocks.reader.ends) > 4
    x = Factors(*(torch.rand(k, 3, generator=rng).to(dense.dtype) for k in V.shape))
    rel = 1e-5 if dtype == np.float32 else 1e-12
    torch.testing.assert_close(blocks @ x.H, dense @ x.H, rtol=rel, atol=0)
    torch.testing.assert_close(blocks.T @ x.W, dense.T @ x.W, rtol=rel, atol=0)
    assert float(blocks.sq_error(x)) == pytest.approx(float(dense.sq_error(x)), rel=1e-4)
    assert float(blocks.total()) == pytest.approx(float(dense.total()), rel=1e-6)


def test_a_room_is_filled_again_and_again(rng):
    room = There(5, 3, torch.float64, CPU)
    for rows in (5, 2):
        block = torch.rand(rows, 3, generator=rng).double()
        np.copyto(room.emptied()[:rows], block.numpy())
        there = room.sent(torch.from_numpy(room.host[:rows]))
        with room.working():
            torch.testing.assert_close(there, block)
        assert there.data_ptr() == room.there.data_ptr()
    other = torch.rand(4, 3, generator=rng).double()  # in a file cache, say
    torch.testing.assert_close(room.sent(other), other)


def test_blocks_keep_within_the_limit():
    blocks = sent(entries(2000, 50), "400kB")
    cuts = np.diff(blocks.reader.ends)
    assert 3 * cuts.max() * 50 * 8 + blocks.reader.room <= as_bytes("400kB")


@pytest.mark.parametrize("bad", [np.nan, -1.0])
def test_bad_entries_are_found_in_the_first_pass(bad):
    V = entries()
    V[77, 5] = bad
    with pytest.raises(ValueError, match=r"block \d+ of \d+ of V \(rows"):
        sent(V).sweep(parts.Nothing())


def test_an_answer_is_that_in_memory():
    V = entries()
    whole, streamed = factorize(V, 4), factorize(sent(V, "900kB"), 4)
    assert float(streamed.rmse) == pytest.approx(float(whole.rmse), rel=1e-3)
    error = np.sqrt(np.mean((np.asarray(streamed.W) @ np.asarray(streamed.H).T - V) ** 2))
    assert float(streamed.rmse) == pytest.approx(float(error), rel=1e-6)


def test_runs_share_passes():
    V = sent(entries(), "900kB")
    results = factorize_many(V, [2, 3, 4], max_iter=30)
    assert np.all(np.diff(results.rmse) < 0)


def test_without_a_limit_the_memory_of_the_device_counts(monkeypatch):
    assert bytes_on(CPU) == as_bytes(None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 2000))
    assert bytes_on(torch.device("cuda")) == 900
    assert bytes_on(torch.device("cuda"), "2kB") == 2000


def test_what_does_not_fit_a_gpu_travels(monkeypatch):
    monkeypatch.setattr("factormer.data.intake.as_device", torch.device)
    V = entries()
    free = 2.5 * V.nbytes
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, free))
    blocks = brought(V, device="cuda")
    assert blocks.reader.sent_to == torch.device("cuda")
    assert brought(V, 3 * V.nbytes, device="cuda") is V
    free = 4 * V.nbytes
    assert brought(V, device="cuda") is V


def test_what_is_no_plain_array_is_no_source():
    for V in (
        np.ones(3),
        np.array([["a"]]),
        torch.ones(2, 2).to_sparse(),
        [[1.0]],
        np.ones((0, 2)),
    ):
        assert array_source(V) is None


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_gpu_that_is_too_small_gets_blocks(dtype, tmp_path):
    V = entries(3000, 700, dtype)
    here = factorize(V, 4)
    np.save(tmp_path / "V.npy", V)
    for given in (V, torch.from_numpy(V), np.load(tmp_path / "V.npy", mmap_mode="r")):
        there = factorize(given, 4, device="cuda", memory_limit="8MB")
        assert "beyond memory" in str(there.plan)
        assert float(there.rmse) == pytest.approx(float(here.rmse), rel=1e-3)
    fine = factorize(V, 4, device="cuda")
    assert "beyond memory" not in str(fine.plan)


@pytest.mark.gpu
def test_an_estimator_streams_to_a_gpu():
    V = entries(3000, 700, np.float32)
    model = NMF(4, device="cuda", memory_limit="8MB", random_state=0)
    W = model.fit_transform(V)
    assert W.shape == (3000, 4)
    np.testing.assert_allclose(model.transform(V), W, rtol=1e-2, atol=1e-3)
