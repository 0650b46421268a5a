"""Whatever runs on a CPU runs on a GPU, and stays there."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from factormer import NMF, factorize
from factormer import penalties as P
from factormer.accelerate.cuda_graph import Captured
from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.data.split import Split
from factormer.problem.problem import Problem
from factormer.run.registry import SOLVERS as KINDS
from factormer.run.registry import STARTS, solver_kind
from factormer.solvers.ao_admm import admm_nnls
from factormer.solvers.loop import loop

SOLVERS = [kind.name for kind in KINDS if {"free", "least squares"} <= set(kind.needs)]

pytestmark = pytest.mark.gpu
SHAPES = [(30, 25, 3), (1, 1, 1), (40, 30, 1), (3, 700, 90, 20), (300, 200, 128), (300, 200, 129)]


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
    choices: list[dict[str, Any]] = [{"mask": known}, {"weights": known.double() + 0.5}]
    for options in choices:
        moved: dict[str, Any] = {name: value.cuda() for name, value in options.items()}
        here = factorize(V, 5, init="random", solver="mu-extrapolated", **options)
        there = factorize(V.cuda(), 5, init="random", solver="mu-extrapolated", **moved)
        assert there.rmse == pytest.approx(here.rmse, rel=1e-2)
    agree(torch.where(known, V, torch.nan), init="random", solver="mu-extrapolated", rel=1e-2)


def test_sparse_and_stacked():
    V = data()
    thin = torch.where(V.mean() < V, V, 0)
    agree(thin.to_sparse(), rel=0.05)
    stack = torch.stack([V, thin])
    here, there = factorize(stack, 5), factorize(stack.cuda(), 5)
    assert np.allclose(here.rmse, there.rmse, rtol=0.02)


def test_symmetric_factors_are_those_of_the_reference(monkeypatch):
    monkeypatch.setattr("factormer.run.core.core", lambda: None)  # it converges in fewer iterations
    V = data()
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


@pytest.mark.parametrize("accelerator", [None, "any-rank"])
@pytest.mark.parametrize("shape", [(60, 40), (3, 60, 40)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_replayed_iterations_are_those_made_one_by_one(accelerator, shape, dtype, monkeypatch):
    """Recorded on a GPU, an iteration is the same."""
    V = torch.stack([data() for _ in range(shape[0])]) if len(shape) == 3 else data()
    options: dict[str, Any] = {"solver": "her-admm", "init": "nndsvd", "tol": 0.0, "max_iter": 25}
    V = V.to(dtype).cuda()
    replayed = factorize(V, 5, accelerator=accelerator, **options)
    monkeypatch.setattr(Captured, "leap", lambda self, problem, state, n: (state, torch.empty(0)))
    stepped = factorize(V, 5, accelerator=accelerator, **options)
    precise = 1e-3 if dtype == torch.float32 else 1e-9
    np.testing.assert_allclose(replayed.trace.rmse, stepped.trace.rmse, rtol=precise)


@pytest.mark.parametrize("noise", [0.05, 1e-2, 1e-7])
@pytest.mark.parametrize("members", [0, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@torch.no_grad()
def test_strides_of_replayed_iterations_do_not_show(dtype, members, noise):
    rng = torch.Generator().manual_seed(0)
    shapes = [((members,) if members else ()) + k for k in ((90, 3), (60, 3), (90, 60))]
    W, H, E = (torch.rand(*k, generator=rng).double() for k in shapes)
    V = (W @ H.mT + noise * E).to("cuda", dtype)
    x0 = Factors(*(torch.rand(k, generator=rng).to("cuda", dtype) for k in shapes[:2]))
    problem = Problem(Dense(V), 3)
    solver, found = solver_kind("her-admm", problem).make(problem), []
    for at_most in (120, 7, 1):
        looks = list(loop(problem, solver, x0, limit=120, at_most=at_most))
        found.append([torch.cat([look.errors for look in looks[1:]]), *looks[-1].factors])
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize(("dtype", "noise"), [(torch.float32, 1e-2), (torch.float64, 1e-7)])
def test_replayed_iterations_go_on_near_a_fit(dtype, noise):
    """Where errors from products have no digits left, a long leap looks at the entries."""
    rng = torch.Generator().manual_seed(0)
    W, H, E = (torch.rand(*k, generator=rng).double() for k in ((90, 3), (60, 3), (90, 60)))
    V = (W @ H.mT + noise * E).to("cuda", dtype)
    options: dict[str, Any] = {"solver": "her-admm", "init": "nndsvd", "tol": 0.0, "max_iter": 300}
    result = factorize(V, 3, accelerator=None, **options)
    assert result.n_iter == 300
    assert result.rmse < noise
    rmse = (result.W @ result.H.mT - V).square().mean().sqrt()
    assert result.rmse == pytest.approx(float(rmse), rel=1e-2)


def test_a_stack_longer_than_a_grid_is_wide():
    rng = torch.Generator().manual_seed(0)
    stack = torch.rand(70_000, 4, 3, generator=rng).cuda()
    options: dict[str, Any] = {"solver": "her-admm", "init": "nndsvd", "max_iter": 12}
    long = factorize(stack, 2, accelerator="any-rank-admm", **options)
    short = factorize(stack[-5:], 2, accelerator="any-rank-admm", **options)
    assert np.allclose(np.asarray(long.rmse)[-5:], short.rmse, rtol=1e-2)


@pytest.mark.parametrize("shape", SHAPES)
def test_fused_admm_is_its_twin(shape):
    *batch, m, n, r = shape
    rng = torch.Generator().manual_seed(0)
    V, W, H, U = (
        torch.rand(*batch, *size, generator=rng).cuda() for size in ((m, n), (m, r), (n, r), (n, r))
    )
    normal, rho = Dense(V).normal(W), torch.full(tuple(batch), 2.0).cuda()
    twin = admm_nnls(normal, H, U, rho=rho, n_inner=10)  # with gradients it is torch's
    with torch.no_grad():
        fused = admm_nnls(normal, H, U, rho=rho, n_inner=10)
    torch.testing.assert_close(fused, twin, rtol=1e-3, atol=1e-4)


def test_sparse_iterations_are_captured(monkeypatch):
    V = scipy.sparse.random_array((300, 200), density=0.1, rng=np.random.default_rng(0))
    V = V.tocsr().astype(np.float32)
    options = {"device": "cuda", "max_iter": 30, "tol": 0, "init": "random"}
    captured = factorize(V, 5, **options)
    monkeypatch.setattr(Captured, "leap", lambda self, problem, state, n: (state, torch.empty(0)))
    assert captured.rmse == pytest.approx(factorize(V, 5, **options).rmse, rel=1e-5)


def test_large_products_are_split_without_harm(monkeypatch):
    rng = torch.Generator("cuda").manual_seed(0)
    W, H = (torch.rand(k, 20, device="cuda", generator=rng) for k in (3000, 2000))
    V = W @ H.mT * (1 + 0.1 * torch.rand(3000, 2000, device="cuda", generator=rng))
    options = {"solver": "her-admm", "max_iter": 100, "tol": 0, "init": "random"}
    split = factorize(V, 20, **options)
    monkeypatch.setattr(Split, "of", staticmethod(lambda V: V))
    plain = factorize(V, 20, **options)
    assert split.rmse == pytest.approx(plain.rmse, rel=1e-3)
    exact = factorize(W @ H.mT, 20, **options)
    monkeypatch.undo()
    assert factorize(W @ H.mT, 20, **options).rmse <= 1.5 * exact.rmse + 1e-6
