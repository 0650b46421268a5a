"""Jobs that are shared out over devices: the same results, in the same order, wherever they ran."""

from __future__ import annotations

import threading
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from factormer import factorize, factorize_many
from factormer.data import Dense
from factormer.data.device import as_devices, moved
from factormer.kernels.threads import width
from factormer.many import devices, run
from factormer.many.jobs import jobs_of
from tests.many.test_factorize_many import problem

TWO = ["cpu", "cpu"]
SIZES = [(30, 20, 3), (12, 40, 2), (50, 35, 4), (25, 25, 5), (60, 10, 2)]


def matrices() -> list[Any]:
    return [problem(m, n, r, k) for k, (m, n, r) in enumerate(SIZES)]


def ranks() -> list[int]:
    return [r for *_, r in SIZES]


def jobs(V: Any, rank: Any, device: Any = TWO, **options: Any) -> Any:
    asked: dict[str, Any] = {
        "n_init": 1, "resample": None, "random_state": 0, "missing": None, "options": {},
    }  # fmt: skip
    return jobs_of(V, rank, device=device, **{**asked, **options})


def test_results_are_those_of_one_device_in_the_order_given():
    here = factorize_many(matrices(), ranks(), random_state=3)
    there = factorize_many(matrices(), ranks(), random_state=3, device=TWO)
    assert len(there) == len(here)
    for a, b in zip(here, there, strict=True):
        np.testing.assert_array_equal(a.W, b.W)
        np.testing.assert_array_equal(a.H, b.H)
    assert there.columns()["problem"].tolist() == list(range(len(SIZES)))


def test_ranks_and_runs_of_one_matrix_are_shared_out():
    V = problem(40, 30, 4, 0)
    one = factorize_many(V, [2, 3, 4], n_init=2, max_iter=20)
    two = factorize_many(V, [2, 3, 4], n_init=2, max_iter=20, device=TWO)
    np.testing.assert_allclose(one.rmse, two.rmse, rtol=1e-6)
    assert len(devices.shares(jobs(V, [2, 3, 4], n_init=2))) == 2


def test_a_stack_is_shared_out():
    V = np.stack([problem(20, 15, 2, k) for k in range(5)])
    one, two = factorize_many(V, 2, max_iter=20), factorize_many(V, 2, max_iter=20, device=TWO)
    np.testing.assert_allclose(one.rmse, two.rmse, rtol=1e-6)


def test_kinds_of_data_move_with_their_jobs():
    dense = problem(30, 20, 3, 0)
    gaps = dense.copy()
    gaps[0, :3] = np.nan
    V = [dense, scipy.sparse.csr_array(np.where(dense > dense.mean(), dense, 0)), gaps]
    one = factorize_many(V, 3, max_iter=10)
    two = factorize_many(V, 3, max_iter=10, device=TWO)
    np.testing.assert_allclose(one.rmse, two.rmse, rtol=1e-6)


def test_as_completed_gives_each_index_once():
    pairs = list(factorize_many(matrices(), ranks(), device=TWO, as_completed=True))
    assert sorted(index for index, _ in pairs) == list(range(len(SIZES)))
    for index, result in pairs:
        assert result.W.shape == (SIZES[index][0], SIZES[index][2])


def test_a_folder_is_filled_and_gone_on_with(tmp_path):
    first = factorize_many(matrices(), ranks(), device=TWO, folder=tmp_path)
    again = factorize_many(matrices(), ranks(), device=TWO, folder=tmp_path)
    np.testing.assert_array_equal(first.rmse, again.rmse)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_work_is_dealt_out_evenly(count):
    rng = np.random.default_rng(0)
    work = rng.exponential(1, 200)
    loads = np.bincount(devices.dealt(work, count), work, minlength=count)
    assert loads.max() - loads.min() <= work.max()


def test_a_large_one_has_a_device_for_itself():
    assert devices.dealt(np.array([1.0] * 8 + [8.0]), 2).tolist() == [1] * 8 + [0]


def test_matrices_stay_with_their_runs():
    asked = jobs(matrices(), ranks(), n_init=3)
    some = devices.shares(asked)
    assert len(some) == 2
    for a, b in combinations_with_replacement(some, 2):
        if a is not b:
            assert not set(asked.problem[a.indices]) & set(asked.problem[b.indices])
    there = devices.placed(asked, some[0])
    assert isinstance(there.sources, list)
    assert len(there.sources) == len(np.unique(asked.problem[some[0].indices]))
    assert there.sizes[0].tolist() == asked.sizes[0][some[0].indices].tolist()


def test_one_error_ends_all_and_names_the_problem(monkeypatch):
    def failing(asked, index):
        if asked.number(index) == 3:
            raise ValueError("no good")
        return ready(asked, index)

    ready = type(jobs(matrices(), ranks())).ready
    monkeypatch.setattr("factormer.many.jobs.Jobs.ready", failing)
    with pytest.raises(ValueError, match="problem 3: no good"):
        factorize_many(matrices(), ranks(), device=TWO, engine="reference")
    assert not [t for t in threading.enumerate() if t.name.startswith("factormer-cpu")]


def test_ctrl_c_keeps_what_is_done(monkeypatch):
    plain = devices._placed

    def slow(asked, share, run):
        for k, batch in enumerate(plain(asked, share, run)):
            yield batch
            if not k and share.indices[0] == 0:
                raise KeyboardInterrupt

    monkeypatch.setattr(devices, "_placed", slow)
    results = factorize_many(matrices(), ranks(), device=TWO)
    assert results.status is not None
    assert results.status.name == "INTERRUPTED"
    assert results.done.any()


def test_full_memory_halves_a_share(monkeypatch):
    calls: list[int] = []
    plain = devices.placed

    def full(asked, share):
        calls.append(len(share.indices))
        if len(share.indices) > 1:
            raise torch.OutOfMemoryError("full")
        return plain(asked, share)

    monkeypatch.setattr(devices, "placed", full)
    results = factorize_many(matrices(), ranks(), device=TWO)
    assert results.done.all()
    assert max(calls) > 1
    np.testing.assert_allclose(results.rmse, factorize_many(matrices(), ranks()).rmse, rtol=1e-6)


def test_one_that_never_fits_is_named(monkeypatch):
    def full(asked, share):
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(devices, "placed", full)
    with pytest.raises(ValueError, match=r"problem \d does not fit into the memory of 'cpu'"):
        factorize_many(matrices(), ranks(), device=TWO)


def test_time_is_up_for_all(monkeypatch):
    results = factorize_many(matrices(), ranks(), device=TWO, time_limit=1e-9)
    assert results.status is not None
    assert results.status.name == "TIME_LIMIT"


@pytest.mark.parametrize("device", [[], 3, ["cpu", 3], {"cpu"}])
def test_what_is_no_device_gets_a_sentence(device):
    with pytest.raises(ValueError, match="it must be the name of a device"):
        as_devices(device)


def test_a_device_that_is_not_there_gets_a_sentence(monkeypatch):
    with pytest.raises(ValueError, match="which is not on this machine"):
        factorize_many(matrices(), ranks(), device=["cpu", "cuda:93"])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match="torch finds no GPU"):
        factorize_many(matrices(), ranks(), device="gpus")


def test_blocks_stay_on_one_device(tmp_path):
    np.save(tmp_path / "V.npy", problem(400, 300, 3, 0))
    V = np.load(tmp_path / "V.npy", mmap_mode="r")
    with pytest.raises(ValueError, match="device names 2 devices"):
        factorize_many([V], 3, device=TWO, memory_limit="2MB")


def test_devices_are_read():
    assert as_devices(None) == []
    assert as_devices("cpu") == [torch.device("cpu")]
    assert as_devices(TWO) == [torch.device("cpu")] * 2


def test_a_matrix_moves_with_its_scale():
    V = Dense(torch.rand(4, 3)).scaled(torch.tensor(2.0))
    assert moved(V, torch.device("cpu")) is V
    there = moved(V, torch.device("meta"))
    assert there.device.type == "meta"
    assert there.shape == V.shape


@pytest.mark.gpu
def test_a_gpu_and_a_cpu_share_the_work():
    results = factorize_many(matrices(), ranks(), device=["cuda", "cpu"], random_state=3)
    for k, (V, r) in enumerate(zip(matrices(), ranks(), strict=True)):
        assert results[k].rmse == pytest.approx(factorize(V, r, random_state=3 + k).rmse, rel=2e-2)


@pytest.mark.gpu
def test_tensors_are_factorized_where_they_are():
    V = [torch.from_numpy(A).float() for A in matrices()]
    V = [A.cuda() if k % 2 else A for k, A in enumerate(V)]
    results = factorize_many(V, ranks())
    assert [result.W.device.type for result in results] == ["cpu", "cuda", "cpu", "cuda", "cpu"]


@pytest.mark.gpu
def test_all_gpus_serve():
    V = [torch.from_numpy(A).float() for A in matrices()]
    all_of_them, one = (
        factorize_many(V, ranks(), device="gpus"),
        factorize_many(V, ranks(), device="cuda"),
    )
    np.testing.assert_allclose(all_of_them.rmse, one.rmse, rtol=1e-6)
    twice = factorize_many(V, ranks(), device=["cuda:0", "cuda:0"])
    np.testing.assert_allclose(twice.rmse, one.rmse, rtol=1e-6)


def test_a_gpu_named_twice_counts_once(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch, "empty", lambda *_, **__: torch.zeros(1))
    assert as_devices("cuda") == [torch.device("cuda", 0)]
    named = as_devices(["cuda", "cpu", "cuda:0", "cuda:1", "cpu"])
    assert [str(d) for d in named] == ["cuda:0", "cpu", "cuda:1", "cpu"]


@pytest.mark.parametrize(("torch_has", "count", "each"), [(4, 2, 2), (4, 3, 1), (5, 2, 2)])
def test_shares_of_the_cpu_have_its_threads_to_equal_parts(monkeypatch, torch_has, count, each):
    before, wide, inside = torch.get_num_threads(), [], []
    plain = run._at_once

    def watched(tasks, deadline):
        wide.append(width())
        tasks = [lambda task=task: (inside.append(width()), task())[1] for task in tasks]
        return plain(tasks, deadline)

    monkeypatch.setattr(run, "_at_once", watched)
    torch.set_num_threads(torch_has)
    try:
        for _ in range(5):  # it was a race
            factorize_many(matrices(), ranks(), device=["cpu"] * count, max_iter=5)
            assert torch.get_num_threads() == torch_has
    finally:
        torch.set_num_threads(before)
    assert wide == [each] * count * 5
    assert set(inside) <= {1, each}  # a share with one task makes it in its own thread
