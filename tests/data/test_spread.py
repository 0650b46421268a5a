"""Rows that stay on workers: in one process, beside what is computed where all rows are."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from factormer import NMF, factorize
from factormer.accelerate.passes import Passes, Sweeps, along, sampled
from factormer.data import Dense, enriched
from factormer.data.dask import Distributed, distributed_of
from factormer.data.factors import Factors
from factormer.data.held import Held
from factormer.data.spread import Spread, spread
from factormer.data.workers import Workers
from factormer.problem.problem import Problem

da = pytest.importorskip("dask.array")

M, N, R = 300, 80, 3
ENDS = (0, 100, 170, 230, 300)


class Here:
    """A client of Dask whose tasks are done at once, in this process."""

    def submit(self, function: Any, *args: Any, pure: bool) -> Any:
        return function(*args)

    def gather(self, found: Any) -> Any:
        return found


def entries():
    rng = np.random.default_rng(0)
    return rng.exponential(size=(M, R)) @ rng.exponential(size=(R, N)) + rng.random((M, N))


def workers(V, groups=((0, 2), (1, 3))):
    return Workers(Here(), tuple(V[a:b] for a, b in pairwise(ENDS)), groups, ENDS)


def spread_of(V, count, groups=((0, 2), (1, 3))):
    B = distributed_of(da.from_array(V, chunks=((100, 70, 60, 70), (N,))))
    return Spread(B.reader, workers=workers(V, groups).sampled(count))


@pytest.fixture
def on_workers(monkeypatch):
    """Dask arrays of `entries()` count as spread, with a sample of half of their rows."""
    found = workers(entries())
    monkeypatch.setattr(Distributed, "workers", property(lambda self: found))
    monkeypatch.setattr("factormer.data.spread._LEAST", M // 2)
    monkeypatch.setattr("factormer.data.spread._EACH", 1)
    return da.from_array(entries(), chunks=((100, 70, 60, 70), (N,)))


def after_two_passes(B, rng):
    B.sketch(4 * R + 10, rng)
    W, H = (torch.rand(size, R, generator=rng).double() for size in (M, N))
    before = B.updated(Factors(W, H), Sweeps(H.mT @ H, 10))
    H = H * (1 + 0.1 * torch.rand(N, R, generator=rng).double())
    return before, B.updated(Factors(before.x.W, H), Sweeps(H.mT @ H, 10))


def test_a_pass_finds_what_one_finds_whose_rows_travel(rng):
    V = entries()
    B, plain = spread_of(V, 100), distributed_of(da.from_array(V, chunks=(70, N)))
    before, seen = after_two_passes(B, rng.manual_seed(0))
    x = Factors(B.gathered(before.x).W, seen.x.H)
    same = plain.updated(x, Sweeps(x.H.mT @ x.H, 10))
    assert isinstance(seen.x.W, Held)
    np.testing.assert_allclose(B.gathered(seen.x).W, same.x.W, rtol=1e-10)
    np.testing.assert_allclose(seen.VtW, same.VtW, rtol=1e-10)
    np.testing.assert_allclose(seen.WtW, same.WtW, rtol=1e-10)
    assert float(seen.sq_error) == pytest.approx(float(same.sq_error))
    norm = Problem(plain, R).stationarity(same.x)
    assert float(Problem(B, R).stationarity(seen.x)) == pytest.approx(float(norm), rel=1e-8)
    assert (float(B.sq_norm()), float(B.total())) == pytest.approx(((V**2).sum(), V.sum()))


def test_the_view_of_all_rows_is_the_matrix_that_agrees_with_v(rng):
    """The literal version has all rows, and makes its bases by projections."""
    V = torch.from_numpy(entries())
    B = spread_of(entries(), M)
    before, seen = after_two_passes(B, rng)
    view, x = B.view(seen)
    here = [s._replace(x=B.gathered(s.x), VH=V @ s.x.H, sums=None) for s in (seen, before)]
    V_hat = enriched(Dense(V), B.known_sketch, *along((here[0], here[1])))
    np.testing.assert_allclose(view.U @ view.Z.mT, V_hat.U @ V_hat.Z.mT, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(x.W, here[0].x.W)
    assert float(view.lost) == pytest.approx(float(V_hat.lost), rel=1e-6)


def test_the_sample_has_the_gradient_of_all_rows(rng):
    B = spread_of(entries(), 60)
    _, seen = after_two_passes(B, rng)
    problem, x = sampled(B, seen, 0.03)
    by_H = seen.x.H @ seen.WtW - seen.VtW
    by_H = torch.where(seen.x.H > 0, by_H, by_H.clamp(max=0))
    np.testing.assert_allclose(problem._step(x), by_H, rtol=1e-7, atol=1e-8)


def test_the_sample_does_not_depend_on_where_rows_are(rng):
    V = entries()
    one, two = (
        spread_of(V, 60, groups).sketch(10, rng.manual_seed(0))
        for groups in (((0, 1, 2, 3),), ((1, 3), (0, 2)))
    )
    np.testing.assert_allclose(one.U @ one.Z.mT, two.U @ two.Z.mT, rtol=1e-8, atol=1e-10)


def test_rows_that_are_elsewhere_cannot_be_computed_with():
    F = Held.of(5, (), 0, torch.rand(2, 3))
    assert repr(F) == "Held((5, 3), torch.float32)"
    with pytest.raises(TypeError, match=r"lie on Dask workers, and aten\.exp.* gather them first"):
        F.exp()


@pytest.mark.parametrize("beta_loss", ["frobenius", "kullback-leibler"])
def test_a_fit_ends_where_one_in_memory_does(on_workers, beta_loss):
    options: Any = {"beta_loss": beta_loss, "random_state": 0}
    found, inside = NMF(R, **options).fit(on_workers), NMF(R, **options).fit(entries())
    assert found.reconstruction_err_ == pytest.approx(inside.reconstruction_err_, rel=1e-3)
    W = found.result_.W
    assert W.shape == (M, R)
    if beta_loss == "frobenius":
        error = np.linalg.norm(entries() - W @ found.components_)
        assert found.reconstruction_err_ == pytest.approx(error, rel=1e-6)
        np.testing.assert_allclose(W, found.transform(entries()), atol=1e-6)


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_what_ends_early_has_all_rows(on_workers, loss):
    def stop(row):
        if row.passes >= 4:
            raise KeyboardInterrupt

    late = factorize(on_workers, R, loss=loss, callback=stop)
    short = factorize(on_workers, R, loss=loss, time_limit=1e-9)
    for result, name in ((late, "INTERRUPTED"), (short, "TIME_LIMIT")):
        assert result.status.name == name
        assert result.W.shape == (M, R)
        assert np.isfinite(result.W).all()


def test_several_runs_share_the_sketch_and_have_all_rows(on_workers, monkeypatch):
    made, hold = list[str](), Workers.hold

    def counted(self: Any, part: Any, *args: Any, reads: bool = True, **options: Any) -> Any:
        made.extend([type(part).__name__] * reads)
        return hold(self, part, *args, reads=reads, **options)

    monkeypatch.setattr(Workers, "hold", counted)
    seen = list[int]()
    result = factorize(on_workers, R, n_init=3, callback=lambda row: seen.append(row.passes))
    runs = [a for a, b in pairwise([*seen, 0]) if b < a]  # each counts from its own beginning
    assert (len(runs), made[:2]) == (3, ["Gram", "BothAndGram"])
    assert set(made[2:]) == {"Remembered"}  # passes of iterations alone
    assert sum(runs) <= len(made) <= sum(runs) + 3
    assert result.W.shape == (M, R)


def test_a_run_does_not_look_at_the_last_pass_of_another(rng):
    B = spread_of(entries(), 150)
    _, seen = after_two_passes(B, rng)
    assert seen.sums.before is not None
    before, _ = after_two_passes(B, rng)
    assert B.record.passes == 2 + 2 + 2  # the sketch is known the second time
    assert before.sums.before is None


def test_rows_travel_where_passes_are_kept_or_a_sample_would_be_all(on_workers, tmp_path):
    V = distributed_of(on_workers)
    assert isinstance(spread(V, R), Spread)
    V.record.journal = object()  # pyright: ignore[reportAttributeAccessIssue]
    assert spread(V, R) is V
    again = factorize(on_workers, R, folder=tmp_path)
    assert len(list(tmp_path.glob("pass-*.npz"))) == again.trace.passes[-1]


def test_a_bolder_step_that_raises_the_error_is_taken_back(rng):
    B = spread_of(entries(), 60)
    problem, solver = Problem(B, R), Passes()
    _, seen = after_two_passes(B, rng)
    state = solver.init(problem, seen.x)
    for _ in range(3):
        state = solver.step(problem, state)
    worse = solver.step(problem, state._replace(ahead=Factors(seen.x.W, state.factors.H.flip(0))))
    assert bool(worse.plain)
    assert float(worse.error) == float(state.error)
    after = solver.step(problem, worse)
    assert float(after.error) <= float(state.error) * (1 + 1e-12)


def test_points_of_before_are_let_go(rng):
    B = spread_of(entries(), 150)
    B.sketch(4 * R + 10, rng)
    problem, solver = Problem(B, R), Passes()
    W, H = (torch.rand(size, R, generator=rng).double() for size in (M, N))
    state, counts = solver.init(problem, Factors(W, H)), []
    for _ in range(8):
        state = solver.step(problem, state)
        counts.append(len(B.record.seen))
    assert max(counts[2:]) <= counts[1] + 1


def test_who_watches_sees_all_rows(on_workers):
    seen = list[tuple[int, ...]]()

    def watch(x: Factors, _: Any) -> bool:
        seen.append(tuple(x.W.shape))
        return bool((x.W < 0).any())

    factorize(on_workers, R, watch=watch)
    assert len(seen) > 1
    assert set(seen) == {(M, R)}


def test_progress_and_callbacks_of_an_estimator_gather_no_rows(on_workers, monkeypatch, capsys):
    gathered, gather = [], Workers.gather
    monkeypatch.setattr(Workers, "gather", lambda self, F: (gathered.append(F), gather(self, F))[1])
    model = NMF(R, random_state=0, verbose=1).fit(on_workers)
    assert "RMSE" in capsys.readouterr().out
    assert len(gathered) == 1  # at the end
    assert model.result_.W.shape == (M, R)
