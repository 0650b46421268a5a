"""Dask arrays: real workers in processes of their own, and what is refused before any work."""

import os
import signal
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from factormer import NMF, MiniBatchNMF, factorize
from factormer.accelerate.passes import Sweeps
from factormer.data.dask import distributed_of
from factormer.data.factors import Factors
from factormer.data.parts import lent
from factormer.data.spread import Spread, spread

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

M, N, R = 300, 80, 3
slow_disks = "ignore:Creating scratch directories is taking:UserWarning"
pytestmark = pytest.mark.filterwarnings(slow_disks)


def entries():
    rng = np.random.default_rng(0)
    return rng.exponential(size=(M, R)) @ rng.exponential(size=(R, N)) + rng.random((M, N))


@pytest.fixture(scope="module")
def client() -> Iterator[None]:
    options = {"dashboard_address": ":0", "memory_limit": 0, "processes": True}
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster,
        distributed.Client(cluster),
    ):
        yield


def sparse(block):
    return scipy.sparse.csr_array(block * (block > 2))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_products_are_those_in_memory(kind, rng):
    V = entries() * (entries() > 2)
    D = da.from_array(V, chunks=(70, N))
    if kind == "sparse":
        D = D.map_blocks(sparse, dtype=float, meta=scipy.sparse.csr_array((0, 0)))
    B = distributed_of(D)
    X = torch.rand(N, R, generator=rng).double()
    Y, Z = B.both(X)
    np.testing.assert_allclose(Y, V @ X.numpy())
    np.testing.assert_allclose(Z, V.T @ (V @ X.numpy()))
    assert float(B.total()) == pytest.approx(V.sum())
    assert B.record.passes == 1


def test_dense_and_sparse_chunks_may_be_mixed(rng):
    V = entries() * (entries() > 2)

    def every_other(block, block_info: Any = None):
        return scipy.sparse.csr_array(block) if block_info[0]["chunk-location"][0] % 2 else block

    D = da.from_array(V, chunks=(70, N)).map_blocks(every_other, dtype=float, meta=np.empty((0, 0)))
    X = torch.rand(N, R, generator=rng).double()
    np.testing.assert_allclose(distributed_of(D) @ X, V @ X.numpy())
    np.testing.assert_allclose(distributed_of(D).turned(X.new_ones(M, 1))[:, 0], V.sum(axis=0))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_transform_is_lazy_and_has_the_chunks_of_the_data(kind):
    V, calls = entries() * (entries() > 2), []

    def seen(block):
        calls.append(1)
        return block if kind == "dense" else sparse(block)

    meta = np.empty((0, 0)) if kind == "dense" else scipy.sparse.csr_array((0, 0))
    D = da.from_array(V, chunks=(70, N)).map_blocks(seen, dtype=float, meta=meta)
    model = NMF(R, random_state=0, callback=lambda row: None).fit(V)
    W = model.transform(D)
    assert calls == []
    assert isinstance(W, da.Array)
    assert W.chunks == ((70, 70, 70, 70, 20), (R,))
    np.testing.assert_allclose(W[60:80].compute(), model.transform(V[60:80]), atol=1e-10)
    assert len(calls) == 2  # the chunks that were asked for
    np.testing.assert_allclose(W.compute(), model.transform(V), atol=1e-10)
    with pytest.raises(ValueError, match="X has 40 features, but NMF is expecting 80"):
        model.transform(D[:, :40])
    with pytest.raises(ValueError, match="whole rows"):
        model.transform(D.rechunk((70, 40)))


@pytest.mark.parametrize("beta_loss", ["frobenius", "kullback-leibler"])
def test_empty_chunks_change_nothing(beta_loss):
    V = entries().astype(np.float32)
    whole = da.from_array(V, chunks=(100, N))
    D = da.from_array(V, chunks=((0, 100, 0, 100, 100, 0), (N,)))
    options: Any = {"beta_loss": beta_loss, "random_state": 0, "max_iter": 3, "tol": 0}
    for kind in (NMF, MiniBatchNMF):
        model, same = (kind(R, **options).fit(X) for X in (D, whole))
        assert model.reconstruction_err_ == pytest.approx(same.reconstruction_err_, rel=1e-4)
        W = model.transform(D)
        assert W.chunks[0] == D.chunks[0]
        assert W.blocks[0].compute().dtype == np.float32
        np.testing.assert_allclose(W, model.transform(whole), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("beta_loss", ["frobenius", "kullback-leibler"])
def test_mini_batches_leave_w_where_the_chunks_are(beta_loss):
    V = entries()
    D = da.from_array(V, chunks=(70, N))
    model = MiniBatchNMF(R, beta_loss=beta_loss, random_state=0, max_iter=8, tol=0)
    W = model.fit_transform(D)
    assert isinstance(W, da.Array)
    inside = NMF(R, beta_loss=beta_loss, random_state=0).fit(V)
    assert model.reconstruction_err_ <= 1.005 * inside.reconstruction_err_
    assert (model.n_iter_, model.n_steps_) == (8, 8 * 5)
    np.testing.assert_allclose(W.compute(), model.transform(V), rtol=1e-3, atol=1e-4)
    if beta_loss == "frobenius":
        found = np.linalg.norm(V - W.compute() @ model.components_)
        assert model.reconstruction_err_ == pytest.approx(found, rel=1e-6)


@pytest.mark.slow  # workers import the package
def test_workers_give_the_answer_in_memory(client):
    V = entries()
    D = da.from_array(V, chunks=(70, N))
    lazy = D.map_blocks(np.copy)  # where chunks are at hand, more passes take less time
    result, inside = factorize(lazy, R), factorize(V, R)
    assert result.rmse == pytest.approx(inside.rmse, rel=1e-3)
    assert result.trace.passes[-1] <= 10
    assert factorize(D, R).rmse == pytest.approx(inside.rmse, rel=1e-3)
    model = NMF(R, random_state=0).fit(D)
    np.testing.assert_allclose(model.transform(D), model.result_.W, atol=1e-8)


def test_chunks_in_memory_are_at_hand_and_tasks_are_not(client):
    V = da.from_array(entries(), chunks=(100, N))
    lazy = V.map_blocks(np.sqrt)
    assert distributed_of(V).reader.is_at_hand
    assert not distributed_of(lazy).reader.is_at_hand
    assert distributed_of(lazy.persist()).reader.is_at_hand
    assert distributed_of(lazy.persist(scheduler="threads")).reader.is_at_hand


def test_a_chunk_is_not_copied_where_its_type_is_right():
    V = np.arange(6.0).reshape(2, 3)
    V.flags.writeable = False  # as chunks are that came from another process
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        block = lent(V, torch.float64)
    assert block.data_ptr() == V.ctypes.data
    np.testing.assert_array_equal(block, V)
    for other in (V[:, ::2], V.astype("f4"), V.astype(int)):
        np.testing.assert_array_equal(lent(other, torch.float64), other)


def placed(V, counts):
    """V in chunks of 30 rows, in the memory of workers: so many on the first, then on the next."""
    caller, parts = distributed.get_client(), {}
    workers = [
        name for name, count in zip(caller.nthreads(), counts, strict=True) for _ in range(count)
    ]
    for k, worker in enumerate(workers):
        parts["V", k, 0] = caller.scatter(V[30 * k : 30 * (k + 1)], workers=[worker], hash=False)
    return da.Array(parts, "V", ((30,) * len(workers), (N,)), meta=np.empty((0, 0)))


def test_chunks_on_workers_are_done_in_one_task_each(client, rng):
    V = entries()
    D = placed(V, (5, 5))
    B, apart = distributed_of(D), distributed_of(D)
    x = Factors(*(torch.rand(size, R, generator=rng).double() for size in (M, N)))
    update = Sweeps(x.H.mT @ x.H, 10)
    assert B.reader.workers.groups == ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9))  # pyright: ignore
    apart.reader.__dict__["workers"] = None  # a task for each chunk
    found, same = B.updated(x, update), apart.updated(x, update)
    for mine, other in ((found.x.W, same.x.W), (found.VH, same.VH), (found.VtW, same.VtW)):
        np.testing.assert_allclose(mine, other, rtol=1e-12)
    np.testing.assert_allclose(found.VH, V @ x.H.numpy())
    assert float(found.sq_error) == pytest.approx(float(same.sq_error), rel=1e-12)
    assert float(B.total()) == pytest.approx(V.sum())


def test_where_one_worker_has_most_chunks_dask_shares_them_out(client):
    D = placed(entries(), (8, 2))
    assert distributed_of(D).reader.workers is None  # pyright: ignore
    assert factorize(D, R).rmse == pytest.approx(factorize(entries(), R).rmse, rel=1e-3)


def made(block_info: Any = None) -> np.ndarray:
    """Rows of a matrix, made where they are needed."""
    (a, b), (_, n) = block_info[None]["array-location"]
    return np.random.default_rng(a).random((b - a, n))


def sent(dask_worker: Any) -> list[tuple[Any, int]]:
    """To whom a worker has sent how many bytes; to nobody: to the caller."""
    return [(e["who"], e["compressed"]) for e in dask_worker.transfer_outgoing_log]


def test_bytes_that_travel_are_those_that_the_docs_say(client, monkeypatch, rng):
    """docs/howto/large.md: with k workers, c chunks and numbers of 8 bytes."""
    m, n, r, k, c = 4000, 500, 8, 2, 8
    D = da.map_blocks(made, chunks=((m // c,) * c, (n,)), dtype=float, meta=np.empty((0, 0)))
    B = distributed_of(D)
    B.sq_norm()  # the first pass, which also finds the sums of rows
    x = Factors(*(torch.rand(size, r, generator=rng).double() for size in (m, n)))
    caller, out = distributed.get_client(), []
    plain, stream = distributed.comm.tcp.TCP.write, caller.scheduler_comm.comm

    async def counted(self, messages, *args, **options):
        size = await plain(self, messages, *args, **options)
        if self is stream and any(message["op"] == "update-graph" for message in messages):
            out.append(size)  # and no heartbeat
        return size

    monkeypatch.setattr(distributed.comm.tcp.TCP, "write", counted)
    before = caller.run(sent)
    B.updated(x, Sweeps(x.H.mT @ x.H, 10))
    entries = [
        e for name, log in caller.run(sent).items() for e in log[len(before.get(name, [])) :]
    ]
    back = sum(size for who, size in entries if who is None)
    across = sum(size for who, size in entries if who is not None)
    slack = 4096 * (c + 1)  # of tasks and their names
    assert len(out) == 1  # a pass is one graph
    assert 0 <= sum(out) - 8 * (m * r + 2 * m + n * r) <= slack
    assert 0 <= back - 8 * (2 * m * r + n * r) <= slack
    # The scheduler may give what is left of a chunk's task to an idle worker: its rows then travel.
    moved = 2 * m * r
    assert (
        across <= 8 * ((k - 1) * n * r + c * n * r + moved) + slack < 8 * m * n / c
    )  # no chunk of V


@pytest.fixture
def small_samples(monkeypatch):
    """W stays on workers from so few rows on."""
    monkeypatch.setattr("factormer.data.spread._LEAST", 100)
    monkeypatch.setattr("factormer.data.spread._EACH", 1)


def rows_from(a, b, n):
    return np.random.default_rng(a).random((b - a, n))


def on_workers(m, n, c, k=2):
    """A matrix in c chunks in the memory of k workers, in equal shares; Dask can make it again."""
    caller, parts = distributed.get_client(), {}
    caller.wait_for_workers(k)  # one that was killed comes back
    names, step = sorted(caller.nthreads()), m // c
    for j in range(c):
        parts["V", j, 0] = caller.submit(
            rows_from,
            j * step,
            (j + 1) * step,
            n,
            pure=False,
            workers=[names[j % k]],
            allow_other_workers=True,
        )
    distributed.wait(list(parts.values()))
    return da.Array(parts, "V", ((step,) * c, (n,)), meta=np.empty((0, 0)))


def test_bytes_that_travel_where_w_stays_are_those_that_the_docs_say(
    client, small_samples, monkeypatch, rng
):
    """docs/howto/large.md: k threads of workers, s rows in the sample, numbers of 8 bytes."""
    m, n, r, k, c, s = 4000, 500, 8, 2, 8, 100
    p = 4 * r + 10
    B = spread(distributed_of(on_workers(m, n, c)), r)
    assert isinstance(B, Spread)
    B.sketch(p, rng)
    H = torch.rand(n, r, generator=rng).double()
    update = Sweeps(H.mT @ H, 10)
    seen = B.updated(Factors(B.from_sketch(H, update), H), update)
    caller, out = distributed.get_client(), []
    plain, stream = distributed.comm.tcp.TCP.write, caller.scheduler_comm.comm

    async def counted(self, messages, *args, **options):
        size = await plain(self, messages, *args, **options)
        if self is stream and any(message["op"] == "update-graph" for message in messages):
            out.append(size)  # and no heartbeat
        return size

    monkeypatch.setattr(distributed.comm.tcp.TCP, "write", counted)
    before = caller.run(sent)
    B.updated(seen.x, update)
    entries = [
        e for name, log in caller.run(sent).items() for e in log[len(before.get(name, [])) :]
    ]
    back = sum(size for who, size in entries if who is None)
    across = sum(size for who, size in entries if who is not None)
    slack = 8192 * k  # of tasks and their names
    assert 0 <= sum(out) - 8 * k * (n * r + r * r) - 8 * s <= slack
    assert 0 <= back - 8 * (2 * s * r + k * (n * r + 2 * r * (p + 4 * r))) <= slack
    assert across <= slack
    assert sum(out) + back < 8 * m * r  # less than W


@pytest.mark.parametrize(
    "loss",
    [pytest.param("frobenius", marks=pytest.mark.slow), "kullback-leibler"],
)
def test_a_worker_that_is_killed_while_it_has_w_changes_nothing(client, small_samples, loss):
    options: Any = {"loss": loss, "tol": 0, "max_iter": 20}
    D = on_workers(600, N, 6)
    assert isinstance(spread(distributed_of(D), R), Spread)
    before, killed = factorize(D, R, **options), []

    def kill(row):
        if row.passes == 4 and not killed:
            killed.append(next(iter(distributed.get_client().run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)

    after = factorize(D, R, callback=kill, **options)
    assert killed
    np.testing.assert_allclose(after.W, before.W, rtol=1e-8, atol=1e-10)
    np.testing.assert_array_equal(after.trace.passes, before.trace.passes)


@pytest.mark.slow
def test_a_cluster_that_goes_away_with_w_is_said(small_samples):
    options = {"dashboard_address": ":0", "memory_limit": 0, "processes": True}
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, **options) as cluster,
        distributed.Client(cluster),
    ):
        D = on_workers(600, N, 6, k=1)

        def leave(row):
            if row.passes == 4:
                cluster.close()

        with pytest.raises(OSError, match=r"workers did not finish a pass .* start again"):
            factorize(D, R, tol=0, max_iter=20, callback=leave)


def test_a_worker_that_is_killed_changes_nothing(client):
    V = entries()
    D = da.from_array(V, chunks=(70, N))
    options: Any = {"tol": 0, "max_iter": 20}
    before = factorize(D, R, **options)
    killed = []

    def kill(row):
        if row.passes == 3 and not killed:
            info = distributed.get_client().scheduler_info()["workers"]
            pids = distributed.get_client().run(os.getpid)
            assert len(info) == len(pids)
            killed.append(next(iter(pids.values())))
            os.kill(killed[0], signal.SIGKILL)

    after = factorize(D, R, callback=kill, **options)
    assert killed
    np.testing.assert_allclose(after.W, before.W, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(after.trace.passes, before.trace.passes)


def test_scores_of_what_is_read_in_blocks_are_refused():
    model = NMF(R, random_state=0, max_iter=5).fit(entries())
    with pytest.raises(ValueError, match=r"X is a Dask array that is read in blocks.*a sample"):
        model.score(da.from_array(entries(), chunks=(70, N)))


def test_bad_chunks_are_refused_before_any_work():
    V = da.from_array(entries(), chunks=(70, N))
    calls = []

    def seen(block):
        calls.append(1)
        return block

    watched = V.map_blocks(seen, dtype=float, meta=np.empty((0, 0)))
    cases = [
        (watched.rechunk((70, 40)), "whole rows: use V.rechunk"),
        (watched[watched[:, 0] > 1], "compute_chunk_sizes"),
        (watched[0], "it must be a matrix"),
        (watched.astype(complex), "real numbers"),
    ]
    for bad, words in cases:
        with pytest.raises(ValueError, match=words):
            factorize(bad, R)
    assert calls == []


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda block: block[:5], r"block \d of 5 .* ndarray of shape \(5, 80\), and Dask"),
        (lambda block: block.tolist(), r"block \d of 5 .* is a list, and Dask takes it for"),
    ],
)
def test_chunks_that_are_not_what_dask_takes_them_for_are_named(make, words):
    D = da.from_array(entries(), chunks=(70, N)).map_blocks(make, meta=np.empty((0, 0)))
    with pytest.raises(ValueError, match=words):
        factorize(D, R)


def test_bad_entries_name_their_chunk():
    V = entries()
    V[100, 3] = -1
    with pytest.raises(ValueError, match=r"block 2 of 5 of V \(rows 70 to 139\) has 1 entries"):
        factorize(da.from_array(V, chunks=(70, N)), R)


@pytest.mark.parametrize(
    "error",
    [FileNotFoundError(2, "No such file", "/data/part.3/V.npy"), RuntimeError("no calibration"),
     TimeoutError("a disk"), ConnectionResetError("a bucket")],
)  # fmt: skip
def test_what_a_loader_raises_is_no_lost_cluster(error):
    def load(block):
        raise error

    D = da.from_array(entries(), chunks=(70, N))
    broken = D.map_blocks(load, dtype=float, meta=np.empty((0, 0)))
    with pytest.raises(type(error)) as raised:
        factorize(broken, R)
    assert str(raised.value) == str(error)


def test_a_lost_cluster_is_told_with_the_first_line_of_its_error(monkeypatch):
    def lost(*graphs):
        raise distributed.comm.CommClosedError("tcp://10.0.0.7:80 is closed\nand more")

    monkeypatch.setattr("dask.base.compute", lost)
    words = (
        r"did not finish a pass over V \(CommClosedError: tcp://10\.0\.0\.7:80 is closed\); check"
    )
    with pytest.raises(OSError, match=words):
        factorize(da.from_array(entries(), chunks=(70, N)), R)


@pytest.mark.slow
def test_a_cluster_that_goes_away_is_said_and_a_new_one_goes_on(tmp_path):
    V, options = entries(), {"dashboard_address": ":0", "memory_limit": 0, "processes": True}
    D = da.from_array(V, chunks=(70, N))
    fit: Any = {"tol": 0, "max_iter": 20, "folder": tmp_path}
    whole = factorize(D, R, tol=0, max_iter=20)
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, **options) as cluster,
        distributed.Client(cluster),
    ):

        def leave(row):
            if row.passes == 3:
                cluster.close()

        words = r"workers did not finish a pass .* keeps 3 passes: the same call goes on there"
        with pytest.raises(OSError, match=words):
            factorize(D, R, callback=leave, **fit)
    again = factorize(D, R, **fit)  # on threads
    np.testing.assert_allclose(again.W, whole.W, rtol=1e-8, atol=1e-10)
