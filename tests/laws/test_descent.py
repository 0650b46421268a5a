"""The loss never rises from one point to the next, for the solvers that claim so."""

from itertools import islice, pairwise

import pytest
import torch
from hypothesis import given

from tests.laws.cases import SOLVERS, law, problems
from tests.steps import steps

DESCENDING = ["hals", "HALS-plain", "her", "mu"]


@pytest.mark.parametrize("name", DESCENDING)
@law
@given(case=problems())
@torch.no_grad()
def test_loss_never_rises(name, case):
    problem, x0 = case
    states = islice(steps(problem, SOLVERS[name], x0), 30)
    losses = [problem.objective(state.factors) for state in states]
    rounding = 1e-15 * problem.V.sq_norm()  # of the Gram products that tell a rise
    for before, after in pairwise(losses):
        assert after <= before * (1 + 1e-12) + rounding
