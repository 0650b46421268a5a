"""One pass over V an iteration: descent, feasible points, and what is left unchanged."""

from itertools import pairwise

import numpy as np
import torch

from factormer.accelerate.her import HER
from factormer.accelerate.passes import Passes
from factormer.data import Dense, readings
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.solvers.loop import iterated, loop


def case(rng, m=40, n=30, r=4):
    W, H = (torch.rand(size, r, generator=rng).double() for size in (m, n))
    V = W @ H.mT + 0.3 * torch.rand(m, n, generator=rng)
    return Problem(Dense(V), r), Factors(torch.rand_like(W), torch.rand_like(H))


@torch.no_grad()
def test_error_never_rises_and_points_are_feasible(rng):
    problem, x0 = case(rng)
    errors = []
    for look in loop(problem, Passes(), x0, limit=8):
        assert all(bool((F >= 0).all() and F.isfinite().all()) for F in look.factors)
        errors.append(float(problem.V.sq_error(look.factors)))
        np.testing.assert_allclose(float(look.state.sq_error(problem)), errors[-1], rtol=1e-9)
    assert all(b <= a * (1 + 1e-12) for a, b in pairwise(errors))


@torch.no_grad()
def test_few_iterations_reach_what_others_need_many_for(rng):
    problem, x0 = case(rng)
    passes = iterated(problem, Passes(), x0, 8).error
    many = iterated(problem, HER(), x0, 300).error
    assert float(passes) < 1.001 * float(many)


@torch.no_grad()
def test_a_step_is_pure(rng):
    problem, x0 = case(rng)
    state = iterated(problem, Passes(), x0, 2)
    held = (*state.factors, state.seen.VH, state.seen.VtW)
    before = [F.clone() for F in held]
    a, b = (Passes().step(problem, state) for _ in range(2))
    assert all(torch.equal(F, G) for F, G in zip(before, held, strict=True))
    assert torch.equal(a.factors.W, b.factors.W)


@torch.no_grad()
def test_a_refused_step_keeps_the_point_and_goes_on_plainly(rng):
    problem, x0 = case(rng)
    state = iterated(problem, Passes(), x0, 2)
    bad = state._replace(ahead=Factors(state.factors.W, torch.rand_like(state.factors.H)))
    refused = Passes().step(problem, bad)
    assert refused.factors is state.factors
    assert bool(refused.plain)
    assert refused.n_ahead == 0  # V̂ was too far from V for as many as before
    after = Passes().step(problem, refused)
    assert float(after.error) <= float(state.error) * (1 + 1e-12)


@torch.no_grad()
def test_an_iteration_on_a_matrix_in_memory_reads_it_twice(rng):
    problem, x0 = case(rng)
    state = iterated(problem, Passes(), x0, 1)
    problem.V.sq_norm()
    with readings.counted() as count:
        Passes().step(problem, state)
    assert count.passes == 2


@torch.no_grad()
def test_iterations_ahead_are_made_only_if_another_pass_follows(rng, monkeypatch):
    made, ahead = [], Passes._ahead
    monkeypatch.setattr(Passes, "_ahead", lambda *a: made.append(1) or ahead(*a))
    problem, x0 = case(rng)
    iterated(problem, Passes(), x0, 3)
    assert len(made) == 2


@torch.no_grad()
def test_twice_as_many_are_made_ahead_while_they_find_what_they_predict(rng):
    problem, x0 = case(rng)
    free = Passes(n_ahead=10, share=0.0, worth=1e9)
    limits = [look.state.n_ahead for look in loop(problem, free, x0, limit=6)]
    assert limits[1:] == [10, 20, 40, 80, 160, 320]
    dear = Passes(n_ahead=10, share=0.0, worth=0.0)  # no more than `at_once` are worth their cost
    limits = [look.state.n_ahead for look in loop(problem, dear, x0, limit=6)]
    assert limits[1:] == [10, 20, 20, 20, 20, 20]
