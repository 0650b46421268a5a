"""The trajectory that is trained on: the package's own loop, with gradients."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch

from factormer.accelerate.base import Accelerated, Always
from factormer.accelerate.learned import LearnedAccelerator, LearnedInit
from factormer.data.factors import Factors
from factormer.nn.refining import Network
from factormer.problem.problem import Problem
from factormer.solvers.ao_admm import AOADMM
from factormer.solvers.loop import loop
from factormer.starts import Given


def rollout(model: Network, problem: Problem, x0: Factors, *, n_accel: int) -> Iterator[Factors]:
    """Yield x¹, x², … of alg. 1 (x¹ is the network's output) or of alg. 2, every proposal taken."""
    if model.config.n_points == 1:
        start = LearnedInit(model, base=Given(x0), safeguard=Always())
        x1 = start(problem, torch.Generator())
        looks = loop(problem, AOADMM(), x1)
    else:
        accelerator = LearnedAccelerator(model)
        solver = Accelerated(AOADMM(), accelerator, safeguard=Always(), n_accel=n_accel)
        looks = islice(loop(problem, solver, x0), 1, None)
    return (look.factors for look in looks)
