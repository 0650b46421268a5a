"""Whatever runs on a CPU runs on a GPU, and stays there."""

from typing import Any

import numpy as np
import pytest
import torch

from factormer import NMF, factorize
from factormer import penalties as P
from factormer.presets import SOLVERS, STARTS

pytestmark = pytest.mark.gpu


def data(m: int = 60, n: int = 40, r: int = 5) -> torch.Tensor:
    rng = torch.Generator().manual_seed(0)
    W, H, noise = (torch.rand(k, generator=rng).double() for k in ((m, r), (n, r), (m, n)))
    return W @ H.mT + 0.05 * noise


def agree(V: torch.Tensor, *, rel: float = 0.02, rank: int = 5, **options: Any) -> None:
    """The same call on both: factors stay on the device, and the fit is as good."""
    here = factorize(V, rank, **options)
    there = factorize(V.cuda(), rank, **options)
    assert there.W.is_cuda
    assert there.H.dtype == V.dtype
    assert there.rmse == pytest.approx(here.rmse, rel=rel)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("solver", ["auto", *SOLVERS])
def test_every_solver(solver, dtype):
    agree(data().to(dtype), solver=solver, accelerator=None, init="nndsvd")


@pytest.mark.parametrize("init", ["auto", *STARTS])
def test_every_start(init):
    agree(data(), init=init)


@pytest.mark.parametrize("solver", ["auto", "her", "ahead", "her-admm"])
def test_the_network_of_any_rank(solver):
    agree(data(), solver=solver, accelerator="any-rank", init="nndsvd")


@pytest.mark.parametrize("options", [{"accelerator": "accel-r10"}, {"init": "init-r10"}])
def test_the_networks_of_one_rank(options):
    agree(data(), rank=10, rel=0.1, **options)


@pytest.mark.parametrize("loss", ["kullback-leibler", "itakura-saito", 1.5])
def test_other_losses(loss):
    agree(data() + 0.1, loss=loss, init="nndsvda", solver="mu")


@pytest.mark.parametrize(
    "options",
    [
        {"regularize_W": P.L1(0.1)},
        {"regularize_H": P.L2(0.1)},
        {"regularize_W": P.Simplex()},
        {"regularize_H": P.Smooth(0.1)},
        {"regularize_H": P.Orthogonal(0.1)},
        {"regularize_W": P.Bounds(0.0, 1.0)},
        {"regularize_W": P.Free()},
    ],
    ids=lambda options: repr(options),
)
def test_penalties(options):
    agree(data(), init="nndsvda", max_iter=400, **options)


def test_unknown_entries_and_weights():
    V = data()
    known = torch.rand(V.shape, generator=torch.Generator().manual_seed(1)) > 0.2
    for options in ({"mask": known}, {"weights": known.double() + 0.5}):
        here = factorize(V, 5, init="random", **options)
        there = factorize(V.cuda(), 5, init="random", **{k: v.cuda() for k, v in options.items()})
        assert there.rmse == pytest.approx(here.rmse, rel=0.05)
    agree(torch.where(known, V, torch.nan), init="random", rel=0.05)


def test_sparse_stacked_and_symmetric():
    V = data()
    thin = torch.where(V.mean() < V, V, 0)
    agree(thin.to_sparse(), rel=0.05)
    stack = torch.stack([V, thin])
    here, there = factorize(stack, 5), factorize(stack.cuda(), 5)
    assert np.allclose(here.rmse, there.rmse, rtol=0.02)
    agree(V.mT @ V, symmetric=True, rel=0.05)


def test_the_estimator_transforms_where_its_data_are():
    V = data().cuda()
    model = NMF(5, random_state=0)
    W = model.fit_transform(V)
    assert W.is_cuda
    torch.testing.assert_close(model.transform(V), W, rtol=1e-6, atol=1e-8)
    assert model.inverse_transform(W).is_cuda
    named = NMF(5, random_state=0, device="cuda").fit_transform(data().numpy())
    assert isinstance(named, np.ndarray)
