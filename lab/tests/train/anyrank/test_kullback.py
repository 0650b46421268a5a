"""Newton steps for training, against the formulas, and what they are trained on."""

import numpy as np
import pytest
import torch
from tests.reference import newton_row
from torch import Tensor

from factormer.data.factors import Factors
from factormer_lab.train.anyrank.config import BASES, AnyRankTraining
from factormer_lab.train.anyrank.counts import COUNTED, counted_bucket
from factormer_lab.train.anyrank.kullback import StackedNewton
from factormer_lab.train.anyrank.rollout import Recorded
from factormer_lab.train.anyrank.tasks import TASKS


def draw(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=rng)


def test_half_step_is_that_of_the_formulas(rng):
    V, W, H = 3 * draw(rng, 2, 7, 5), draw(rng, 2, 7, 3), draw(rng, 2, 5, 3)
    found = StackedNewton(n_sweeps=4, near=1e-5).half_step(V, W, H)
    options = {"beta": 1, "l1": 0.0, "l2": 0.0, "near": 1e-5, "n_sweeps": 4}
    for b in range(2):
        for j in range(5):
            v, B, x = V[b, :, j].numpy(), W[b].numpy(), H[b, j].numpy()
            expected = newton_row(v, np.ones_like(v), B, x, **options)
            np.testing.assert_allclose(found[b, j].numpy(), expected, rtol=1e-8, atol=1e-12)


def test_gradient_is_that_of_differences(rng):
    V, W, H = 3 * draw(rng, 1, 6, 4), draw(rng, 1, 6, 2) + 0.5, draw(rng, 1, 4, 2) + 0.5
    inputs = (W.requires_grad_(), H.requires_grad_())
    assert torch.autograd.gradcheck(lambda W, H: StackedNewton().half_step(V, W, H), inputs)


def test_steps_never_raise_the_divergence(rng):
    bucket = counted_bucket((20, 15, 4), 2, rng, COUNTED)
    problem, solver = bucket.problem(slice(None)), Recorded(StackedNewton())
    state = solver.init(problem, bucket.x0)
    with torch.no_grad():
        for _ in range(8):
            before, state = state.error, solver.step(problem, state)
            assert (state.error <= before * (1 + 1e-5)).all()


def test_every_kind_of_counts_has_a_sound_start(rng):
    bucket = counted_bucket((20, 15, 4), 3, rng, COUNTED)
    assert bucket.V.shape == (3 * len(COUNTED.names), 20, 15)
    assert (bucket.V >= 0).all()
    assert all((F > 0).all() and F.isfinite().all() for F in bucket.x0)


def test_every_base_has_a_task():
    assert tuple(TASKS) == BASES


@pytest.mark.parametrize("base", BASES)
def test_every_base_has_gradients(base, rng):
    task = TASKS[base]
    shape = (12, 10, 3)
    bucket = task.draw(shape, 1, rng, task.source)
    solver = Recorded(task.solver(AnyRankTraining(name="tiny"), 0, shape))
    problem = bucket.problem(slice(None))
    x0 = Factors(*(F.clone().requires_grad_() for F in bucket.x0))
    error = solver.step(problem, solver.init(problem, x0)).error.sum()
    gradients = torch.autograd.grad(error, list(x0), allow_unused=True)
    assert all(g is None or g.isfinite().all() for g in gradients)
    assert any(g is not None and g.any() for g in gradients)
