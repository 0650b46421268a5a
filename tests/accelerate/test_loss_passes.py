"""Other losses of data beyond memory: what passes find, descent, and the answer in memory."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from factormer import NMF, explain, factorize, factorize_many
from factormer.accelerate.loss_passes import LossPasses, fitted, minimum
from factormer.data import Dense, Sparse
from factormer.data.factors import Factors
from factormer.data.outofcore import blocks_of
from factormer.data.sources import Source
from factormer.problem.entrywise import EntryByEntry
from factormer.problem.losses import Beta
from factormer.problem.problem import Problem
from factormer.solvers.loop import loop

M, N, R = 120, 50, 3
LIMIT = 5e5


def counts(mean=3.0):
    rng = np.random.default_rng(0)
    W, H = (rng.exponential(size=(size, R)) * (rng.random((size, R)) < 0.7) for size in (M, N))
    return rng.poisson(mean * W @ H.T).astype(float)


def blocks(V, *, sparse=False, limit: float = LIMIT) -> Any:
    rows = scipy.sparse.csr_array(V) if sparse else V
    stored = float(rows.nnz if sparse else V.size)  # pyright: ignore[reportAttributeAccessIssue]
    source = Source(lambda a, b: rows[a:b], V.shape, V.dtype, "list", stored, sparse, step=40)
    return blocks_of(source, limit)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr("factormer.data.outofcore._BLOCK", 16_000)


def start(rng):
    return Factors(*(torch.rand(size, R, generator=rng).double() + 0.1 for size in (M, N)))


@pytest.mark.parametrize(("beta", "sparse"), [(1.0, False), (1.0, True), (1.5, False)])
@torch.no_grad()
def test_value_and_gradients_are_those_in_memory(beta, sparse, rng):
    V, x = counts(), start(rng)
    B = blocks(V, sparse=sparse)
    own = Problem(B.scaled(torch.tensor(0.5)), R, Beta(beta))
    inside = Problem(Dense(torch.from_numpy(V / 2)), R, Beta(beta))
    assert len(B.reader.ends) > 3
    torch.testing.assert_close(own.objective(x), inside.objective(x))
    torch.testing.assert_close(own.stationarity(x), inside.stationarity(x))
    for some, other in zip(
        own.T.misfit.parts(x.swap()), inside.T.misfit.parts(x.swap()), strict=True
    ):
        torch.testing.assert_close(some, other)
    assert B.record.passes == 1


@pytest.mark.parametrize("beta", [1.0, 1.5])
@torch.no_grad()
def test_the_curvature_is_the_second_derivative(beta, rng):
    V, (W, H) = torch.from_numpy(counts() + 0.5), start(rng)
    found = EntryByEntry(Dense(V), Beta(beta)).curvature(Factors(W, H)).view(N, R, R)

    def value(h):
        return Beta(beta)(V[:, 7], W @ h).sum()

    with torch.enable_grad():
        expected = torch.autograd.functional.hessian(value, H[7])
    torch.testing.assert_close(found[7], expected)


@pytest.mark.parametrize("compiled", [True, False])
@torch.no_grad()
def test_the_curvature_of_sparse_data_is_that_of_dense(compiled, rng, monkeypatch):
    if not compiled:
        monkeypatch.setattr("factormer.kernels.stored_entries", lambda *_: None)
    V, x = counts(), start(rng)
    dense = EntryByEntry(Dense(torch.from_numpy(V)), Beta(1.0)).curvature(x)
    sparse = EntryByEntry(Sparse.of(scipy.sparse.csr_array(V)), Beta(1.0)).curvature(x)
    torch.testing.assert_close(sparse, dense)


@torch.no_grad()
def test_the_minimum_of_a_model_satisfies_its_conditions(rng):
    A = torch.rand(20, 6, R, generator=rng).double()
    C = A.mT @ A
    H, G = torch.rand(20, R, generator=rng).double(), torch.randn(20, R, generator=rng).double()
    X = minimum(H, G, C, 500)
    slope = G + (C @ (X - H)[:, :, None]).squeeze(-1)
    assert bool((X >= 0).all())
    assert float(slope.min()) > -1e-6
    assert float((slope * X).abs().max()) < 1e-6


@pytest.mark.parametrize("compiled", [True, False])
@torch.no_grad()
def test_steps_of_w_never_raise_the_loss(compiled, rng, monkeypatch):
    if not compiled:
        monkeypatch.setattr("factormer.accelerate.loss_passes.coded", lambda *_: None)
    problem, x = Problem(Dense(torch.from_numpy(counts())), R, Beta(1.0)), start(rng)
    values = [float(problem.objective(x))]
    for _ in range(5):
        x = Factors(fitted(problem, x, 2), x.H)
        values.append(float(problem.objective(x)))
    assert all(b <= a * (1 + 1e-12) for a, b in pairwise(values))
    assert values[-1] < values[0]


@torch.no_grad()
def test_the_value_never_rises_and_an_iteration_is_a_pass(rng):
    B = blocks(counts())
    problem = Problem(B, R, Beta(1.0))
    B.total()
    inside = Problem(Dense(torch.from_numpy(counts())), R, Beta(1.0))
    errors = []
    for look in loop(problem, LossPasses(), start(rng), limit=15):
        if look.t:
            errors.append(float(look.state.sq_error(problem)))
            assert errors[-1] == pytest.approx(2 * float(inside.objective(look.factors)))
            assert all(bool((F >= 0).all()) for F in look.factors)
    assert all(b <= a * (1 + 1e-12) for a, b in pairwise(errors))
    assert B.record.passes == 1 + 15


@torch.no_grad()
def test_what_raises_the_value_is_refused_until_a_step_that_cannot(rng):
    B = blocks(counts())
    problem, solver = Problem(B, R, Beta(1.0)), LossPasses()
    state = solver.init(problem, start(rng))
    while state.before is None:  # the first steps may be refused, too
        state = solver.step(problem, state)
    for caution in (1, 2):
        bad = state._replace(H=100 * torch.rand_like(state.H), caution=caution - 1)
        refused = solver.step(problem, bad)
        assert refused.factors is state.factors
        assert refused.caution == caution
    after = solver.step(problem, refused)  # a multiplicative update
    assert float(after.sq_error(problem)) <= float(state.sq_error(problem)) * (1 + 1e-12)


@pytest.mark.parametrize("sparse", [False, True])
def test_the_answer_is_that_in_memory(sparse):
    V = counts()
    B = blocks(V, sparse=sparse)
    result = factorize(B, R, loss="kullback-leibler", tol=1e-5)
    inside = min(
        (factorize(V, R, loss="kullback-leibler", tol=1e-6, random_state=k) for k in range(3)),
        key=lambda found: found.rmse,
    )
    assert result.rmse == pytest.approx(inside.rmse, rel=1e-4)
    assert result.trace.passes[-1] == B.record.passes < 60
    fit = np.maximum(result.W @ result.H.T, 1e-300)
    divergence = (V * np.log(np.maximum(V, 1e-300) / fit) - V + fit).sum()
    assert result.rmse == pytest.approx(np.sqrt(2 * divergence / V.size), rel=1e-6)


def test_ranks_share_passes():
    B = blocks(counts(), limit=3e6)
    results = factorize_many(B, [2, 3], loss="kullback-leibler", tol=0, max_iter=8)
    assert B.record.passes == 2 + 3
    assert results[1].rmse < results[0].rmse


def test_the_estimator_and_its_transform(tmp_path):
    np.save(tmp_path / "V.npy", np.tile(counts(), (2, 3)))
    V = np.load(tmp_path / "V.npy", mmap_mode="r")
    assert "Newton" in str(explain(V, R, loss="kullback-leibler", memory_limit="700kB"))
    model = NMF(R, beta_loss="kullback-leibler", memory_limit="700kB", random_state=0)
    W = model.fit_transform(V)
    assert W.shape == (2 * M, R)
    fit = W @ model.components_
    assert np.isfinite(model.reconstruction_err_)
    assert float(np.abs(fit - V).mean()) < float(np.abs(V - V.mean()).mean())
    np.testing.assert_allclose(model.transform(V), model.transform(np.asarray(V)), atol=1e-4)


def test_what_is_not_served_is_refused():
    B = blocks(counts())
    with pytest.raises(ValueError, match=r"β = 0, .*β between 1 and 2"):
        factorize(B, R, loss="itakura-saito")
    with pytest.raises(ValueError, match="solver='auto', without penalties"):
        factorize(B, R, loss="kullback-leibler", solver="mu")
    with pytest.raises(ValueError, match="the curvature of the loss takes"):
        factorize(B, 40, loss="kullback-leibler")
    with pytest.raises(ValueError, match="if V is dense"):
        factorize(blocks(counts(), sparse=True), R, loss=1.5)
