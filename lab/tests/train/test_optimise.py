"""One optimiser step: gradient, clipping, averaging; and a gradient that is not finite."""

import copy
from dataclasses import replace

import pytest
import torch
from tests.networks import random_network, small_config

from factormer.data import Dense
from factormer.problem.problem import Problem
from factormer_lab.train.optimise import Learner, _stack, _tensors
from factormer_lab.train.synthetic import SizeClass, Stack, stack
from lab.tests.train.cases import CONFIG, assert_same_weights

BATCH = stack(SizeClass(2, (4, 6), (4, 6)), 3, 0.01, seed=0)


def learner(**changes) -> Learner:
    config = replace(CONFIG, **changes)
    return Learner(random_network(config.model).float(), config)


def poisoned(batch: Stack) -> Stack:
    V = batch.problem.V
    assert isinstance(V, Dense)
    bad = Dense(V.entries.index_fill(0, torch.tensor([0]), torch.inf), V.rows, V.cols)
    return batch._replace(problem=Problem(bad, batch.problem.rank))


def test_first_step_is_that_of_adamw_at_the_rate_given():
    ours = learner(weight_decay=0.0)
    before = [p.detach().clone() for p in ours.model.parameters()]
    ours.step(BATCH, n_accel=1, lr=1e-3)
    moved = [
        (p.detach() - b)[p.grad.abs() > 1e-4]
        for p, b in zip(ours.model.parameters(), before, strict=True)
        if p.grad is not None
    ]
    steps = torch.cat(moved).abs()
    torch.testing.assert_close(steps, torch.full_like(steps, 1e-3), rtol=1e-2, atol=1e-6)


def test_steps_on_one_batch_lower_its_loss():
    ours = learner()
    losses = [ours.step(BATCH, n_accel=1, lr=3e-3).item() for _ in range(30)]
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("clip", [1e-3, 1e3])
def test_clipping_bounds_the_norm_of_the_gradient(clip):
    plain, clipped = learner(), learner(clip=clip)
    norms = []
    for ours in (plain, clipped):
        ours.step(BATCH, n_accel=1, lr=1e-3)
        gradients = [p.grad for p in ours.model.parameters() if p.grad is not None]
        norms.append(torch.nn.utils.get_total_norm(gradients).item())
    assert norms[1] == pytest.approx(min(clip, norms[0]), rel=1e-4)


def test_average_without_decay_is_the_last_weights():
    ours = learner(ema=0.0)
    ours.step(BATCH, n_accel=1, lr=1e-2)
    assert_same_weights(ours.average, ours.model)


def test_average_trails_the_weights():
    ours = learner(ema=0.75)
    start = ours.model.extract.weight.detach().clone()
    ours.step(BATCH, n_accel=1, lr=1e-2)
    expected = 0.75 * start + 0.25 * ours.model.extract.weight
    torch.testing.assert_close(ours.average.extract.weight, expected)


def test_restored_learner_goes_on_as_if_nothing_had_happened():
    ours, other = learner(), learner()
    ours.step(BATCH, n_accel=1, lr=1e-2)
    saved = copy.deepcopy(ours.state())
    ours.step(BATCH, n_accel=1, lr=1e-2)
    other.restore(saved)
    other.step(BATCH, n_accel=1, lr=1e-2)
    assert_same_weights(ours.model, other.model)
    assert_same_weights(ours.average, other.average)


def test_restoring_an_earlier_state_undoes_later_steps():
    ours, fresh = learner(), learner()
    before = copy.deepcopy(ours.state())
    ours.step(BATCH, n_accel=1, lr=1e-2)
    ours.restore(before)
    for each in (ours, fresh):
        each.step(BATCH, n_accel=1, lr=1e-2)
    assert_same_weights(ours.model, fresh.model)


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")  # where there is a GPU
def test_step_that_cannot_be_recorded_is_made_anyway_and_said(caplog):
    ours, plain = learner(), learner()
    ours.records = True  # as on a GPU, but this learner is on a CPU
    for each in (ours, plain):
        each.step(BATCH, n_accel=1, lr=1e-2)
    assert_same_weights(ours.model, plain.model)
    assert not ours.records
    assert "cannot be recorded as a CUDA graph" in caplog.text


def test_step_never_waits_for_the_device():
    """Nothing that a step computes is looked at, or it could not be recorded."""
    for config in (CONFIG, replace(CONFIG, model=small_config(n_points=2))):
        model = random_network(config.model).float().to("meta")
        ours = Learner(model, config)
        tensors = [t.to("meta") for t in _tensors(BATCH)]
        ours._step(_stack(tensors, BATCH.problem.rank), n_accel=1)


def test_gradient_that_is_not_finite_leaves_finite_weights():
    ours = learner()
    ours.step(poisoned(BATCH), n_accel=1, lr=1e-2)
    assert all(p.isfinite().all() for p in ours.model.parameters())
    assert ours.step(BATCH, n_accel=1, lr=1e-2).isfinite()
