"""Problems on the chip of a GPU: as single calls on a CPU, and the same in any batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from factormer import Status, factorize, factorize_many
from factormer.data import Dense
from factormer.many.resample import resampled
from tests.many.test_factorize_many import problem

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def chip():
    pytest.importorskip("cupy")


def tensors(sizes: Any) -> list[torch.Tensor]:
    return [
        torch.from_numpy(problem(m, n, r, k)).float().cuda() for k, (m, n, r) in enumerate(sizes)
    ]


def is_on_chip(result) -> bool:
    return "chip" in str(result.plan)


SIZES = [
    (1, 1, 1), (2, 30, 1), (33, 20, 2), (20, 33, 3), (64, 65, 5), (100, 100, 10), (128, 40, 11),
    (40, 128, 13), (90, 80, 16), (70, 75, 17), (129, 60, 24), (60, 257, 25), (64, 64, 32),
]  # fmt: skip


@pytest.mark.parametrize("n_iter", [1, 7])
def test_iterations_are_those_of_the_reference(n_iter, monkeypatch):
    monkeypatch.setattr("factormer.run.core.core", lambda: None)  # it makes other sweeps
    V, ranks = tensors(SIZES), [r for *_, r in SIZES]
    results = factorize_many(V, ranks, init="random", tol=0, max_iter=n_iter, random_state=3)
    for k, (A, rank) in enumerate(zip(V, ranks, strict=True)):
        alone = factorize(
            A.double().cpu(), rank, solver="her", init="random", tol=0, max_iter=n_iter,
            random_state=3 + k,
        )  # fmt: skip
        assert is_on_chip(results[k])
        assert results[k].rmse == pytest.approx(alone.rmse, rel=2e-3, abs=1e-5)


def test_ends_are_those_of_a_cpu():
    rng = np.random.default_rng(0)
    sizes = [tuple(int(k) for k in rng.integers((20, 20, 2), (100, 100, 10))) for _ in range(40)]
    V, ranks = tensors(sizes), [r for *_, r in sizes]
    results = factorize_many(V, ranks)
    ratios = [
        results[k].rmse / float(factorize(A.double().cpu().numpy(), r, random_state=k).rmse)
        for k, (A, r) in enumerate(zip(V, ranks, strict=True))
    ]
    assert np.median(np.abs(np.array(ratios) - 1)) < 1e-4
    assert np.mean(np.abs(np.array(ratios) - 1) < 1e-3) >= 0.9


def test_reported_is_recomputed_and_feasible():
    V, ranks = tensors(SIZES), [r for *_, r in SIZES]
    for A, result in zip(V, factorize_many(V, ranks), strict=True):
        W, H = result.W, result.H
        assert W.is_cuda
        assert bool((W >= 0).all())
        assert bool((H >= 0).all())
        error = (W.double() @ H.double().mT - A.double()).square().mean().sqrt()
        assert result.rmse == pytest.approx(float(error), rel=1e-3, abs=1e-5)


def test_a_batch_is_its_members():
    V, ranks = tensors(SIZES), [r for *_, r in SIZES]
    together = factorize_many(V, ranks, random_state=5)
    for k, (A, rank) in enumerate(zip(V, ranks, strict=True)):
        (alone,) = factorize_many([A], [rank], random_state=5 + k)
        assert torch.equal(alone.W, together[k].W)
        assert torch.equal(alone.H, together[k].H)


def test_a_stack_is_a_list_in_any_precision_and_layout():
    V = torch.stack(tensors([(30, 20, 3)] * 5))
    stack = factorize_many(V, 3).rmse
    np.testing.assert_array_equal(stack, factorize_many(list(V), 3).rmse)
    np.testing.assert_array_equal(stack, factorize_many(list(V.double()), 3).rmse)
    turned = [A.mT.contiguous().mT for A in V]
    np.testing.assert_array_equal(stack, factorize_many(turned, 3).rmse)


def test_runs_and_ranks_of_one_matrix_share_it():
    (V,) = tensors([(60, 50, 4)])
    results = factorize_many(V, range(2, 7), n_init=3)
    assert len(results) == 15
    assert results.columns()["rank"].tolist() == np.repeat(np.arange(2, 7), 3).tolist()
    assert is_on_chip(results[14])


def test_what_does_not_fit_goes_another_way():
    V = tensors([(30, 20, 3), (400, 300, 5)])
    small, large = factorize_many(V, [3, 5], max_iter=30)
    assert is_on_chip(small)
    assert not is_on_chip(large)
    (high,) = factorize_many(tensors([(60, 50, 40)]), [40], max_iter=5)
    assert not is_on_chip(high)
    (other,) = factorize_many(V[:1], 3, loss="itakura-saito", max_iter=5)
    assert not is_on_chip(other)


KULLBACK = "kullback-leibler"


def counts(sizes: Any, mean: float = 5) -> list[torch.Tensor]:
    rng = torch.Generator("cuda").manual_seed(0)
    return [torch.poisson(mean * A / A.mean(), generator=rng) for A in tensors(sizes)]


def divergence(V: torch.Tensor, result: Any) -> float:
    """2D over the entries of V, and its root."""
    y, v = (result.W.double() @ result.H.double().mT).clamp(min=1e-30), V.double()
    D = torch.special.xlogy(v, v / y) - v + y
    return float((2 * D.mean()).sqrt())


@pytest.mark.parametrize(("n_iter", "rel"), [(1, 3e-2), (7, 1e-2)])  # the start is chaotic
def test_kullback_iterations_are_those_of_a_cpu(n_iter, rel):
    V, ranks = counts(SIZES[2:]), [r for *_, r in SIZES[2:]]
    options = {"tol": 0, "max_iter": n_iter, "loss": KULLBACK}
    results = factorize_many(V, ranks, random_state=3, **options)
    for k, (A, rank) in enumerate(zip(V, ranks, strict=True)):
        alone = factorize(A.double().cpu(), rank, random_state=3 + k, **options)
        assert is_on_chip(results[k])
        assert results[k].rmse == pytest.approx(alone.rmse, rel=rel, abs=1e-5)
        assert results[k].rmse == pytest.approx(divergence(A, results[k]), rel=1e-4)


def test_kullback_ends_are_those_of_a_cpu():
    rng = np.random.default_rng(0)
    sizes = [tuple(int(k) for k in rng.integers((20, 20, 2), (100, 100, 10))) for _ in range(40)]
    V, ranks = counts(sizes), [r for *_, r in sizes]
    results = factorize_many(V, ranks, loss=KULLBACK)
    ratios = [
        results[k].rmse / float(factorize(A.double().cpu(), r, loss=KULLBACK, random_state=k).rmse)
        for k, (A, r) in enumerate(zip(V, ranks, strict=True))
    ]
    assert np.median(np.abs(np.array(ratios) - 1)) < 1e-3
    assert np.mean(np.abs(np.array(ratios) - 1) < 1e-2) >= 0.9
    assert all(result.status is Status.CONVERGED for result in results)


@pytest.mark.parametrize("loss", ["frobenius", KULLBACK])
@pytest.mark.parametrize(("size", "rank"), [((96, 700), 5), ((700, 96), 12), ((300, 290), 20)])
def test_what_is_too_large_for_the_chip_stays_where_it_is(loss, size, rank):
    (V,) = counts([(*size, 4)])
    options = {"loss": loss, "init": "random", "tol": 0, "max_iter": 10}
    results = factorize_many(V, rank, n_init=40, **options)
    for k in (0, 39):
        alone = factorize(V.double().cpu(), rank, random_state=k, **options)
        again = divergence(V, results[k]) if loss == KULLBACK else _rmse(V, results[k])
        assert is_on_chip(results[k])
        assert results[k].rmse == pytest.approx(alone.rmse, rel=2e-2)
        assert results[k].rmse == pytest.approx(again, rel=1e-4)
    assert len(set(results.rmse.tolist())) > 30


def _rmse(V: torch.Tensor, result: Any) -> float:
    found = result.W.double() @ result.H.double().mT - V.double()
    return float(found.square().mean().sqrt())


@pytest.mark.parametrize("resample", ["poisson", "bootstrap"])
@pytest.mark.parametrize("size", [(40, 30), (96, 700)])
def test_resampled_data_are_drawn_where_the_work_is_done(resample, size):
    (V,) = counts([(*size, 4)])
    results = factorize_many(V, 4, n_init=40, resample=resample, max_iter=30)
    assert is_on_chip(results[7])
    drawn = resampled(Dense(V), resample, 7)
    assert isinstance(drawn, Dense)
    assert results[7].rmse == pytest.approx(_rmse(drawn.entries, results[7]), rel=1e-4)


def test_gaps_are_unknown_and_negative_data_is_refused():
    V = tensors([(30, 20, 3), (30, 20, 3)])
    V[1][3, 4] = torch.nan
    plain, gaps = factorize_many(V, 3, max_iter=30)
    assert is_on_chip(plain)
    assert not is_on_chip(gaps)
    alone = factorize(V[1], 3, max_iter=30, random_state=1)
    assert gaps.rmse == pytest.approx(alone.rmse, rel=1e-3)
    V[1][3, 4] = -1
    with pytest.raises(ValueError, match="problem 1: Negative values"):
        factorize_many(V, 3)


def test_nothing_stays_nothing():
    (result,) = factorize_many([torch.zeros(9, 8, device="cuda")], 2)
    assert result.rmse == 0
    assert result.status is Status.CONVERGED
    assert not bool((result.W @ result.H.mT).any())


@pytest.mark.parametrize("scale", ["balanced", "sum", None])
@pytest.mark.parametrize("order", ["share", None])
def test_order_and_scale(order, scale):
    (V,) = tensors([(40, 30, 4)])
    (result,) = factorize_many([V], 4, order=order, scale=scale)
    W, H = result.W, result.H
    if scale == "sum":
        torch.testing.assert_close(H.sum(dim=0), torch.ones(4, device="cuda"), rtol=1e-4, atol=0)
    if scale == "balanced":
        torch.testing.assert_close(W.norm(dim=0), H.norm(dim=0), rtol=1e-4, atol=0)
    if order:
        shares = W.sum(dim=0) * H.sum(dim=0)
        assert bool((shares.diff() <= 1e-5 * shares.max()).all())


def test_refused_jobs_are_answered_in_any_order():
    V = tensors([(30, 20, 3)] * 3)
    V[1][3, 4] = torch.nan
    pairs = dict(factorize_many(V, 3, max_iter=30, as_completed=True))
    assert sorted(pairs) == [0, 1, 2]
    assert not is_on_chip(pairs[1])


def test_numbers_beyond_float32_and_other_losses_keep_their_precision():
    (small,) = tensors([(30, 20, 3)])
    huge, plain = factorize_many([1e60 * small.double(), small.double()], 3, max_iter=50)
    assert not is_on_chip(huge)
    assert bool(huge.W.isfinite().all())
    assert is_on_chip(plain)
    for loss in ("kullback-leibler", "itakura-saito", "frobenius"):
        (other,) = factorize_many([small.double()], 3, loss=loss, max_iter=5)
        assert other.W.dtype == torch.float64
    (large,) = factorize_many([1e34 * small], 3, max_iter=50)
    assert bool(large.W.isfinite().all())
    with pytest.raises(ValueError, match="too large"):
        factorize_many([1e36 * small], 3, max_iter=50)


def test_a_folder_keeps_what_the_chip_made(tmp_path):
    V, ranks = tensors(SIZES), [r for *_, r in SIZES]
    first, again = (factorize_many(V, ranks, folder=tmp_path) for _ in range(2))
    for a, b in zip(first, again, strict=True):
        assert is_on_chip(a)
        assert b.W.device == a.W.device
        assert torch.equal(a.W, b.W)
        assert torch.equal(a.H, b.H)
        assert (a.rmse, a.n_iter, a.status, a.plan) == (b.rmse, b.n_iter, b.status, b.plan)
        np.testing.assert_array_equal(a.trace.rmse, b.trace.rmse)
