"""Plain extrapolation, and a network from where on many more iterations are to be expected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from factormer.accelerate.anyrank import AnyRank
from factormer.accelerate.base import Judged, RestartedState, Resumable
from factormer.accelerate.extrapolate import Momentum
from factormer.data.factors import Factors
from factormer.problem.problem import Problem

OVER = 2  # iterations over which the fall of the error is measured


def slowness(
    before: Float[Tensor, ""], now: Float[Tensor, ""], iteration: int
) -> Float[Tensor, ""]:
    """What an iteration still gains, of the error, times the iterations made.

    `before` is the error `OVER` iterations earlier. Errors fall about like a power of the number of
    iterations: this is then the share of the error that is still to be gained, but for a factor.
    """
    return iteration * (before - now) / (OVER * torch.where(now > 0, now, torch.inf))


class Sleeping(NamedTuple):
    """What is known before the network is asked: the momentum, iterations, and the last errors."""

    momentum: Momentum
    t: int
    errors: tuple[Float[Tensor, ""], ...]


@dataclass(frozen=True)
class Waking(Judged):
    """A solver of one matrix that extrapolates, and asks a network if the run is slow.

    A network makes iterations fewer and each of them dearer, so it pays where they are many. Which
    they are the run itself tells: after `look` iterations, by `slowness` of at least `share`.
    Until then, and in a run that is not slow, this is plain extrapolation to the last bit.
    """

    accelerator: AnyRank
    look: int
    share: float

    def memory(self, problem: Problem, x0: Factors) -> Sleeping:
        return Sleeping(self.accelerator.momentum.init(problem, x0), 0, ())

    def proposal(
        self, problem: Problem, before: Resumable, after: RestartedState
    ) -> tuple[Factors, Any]:
        known, x, stepped = before.memory, before.factors, after.factors
        if not isinstance(known, Sleeping):
            return self.accelerator.propose(problem, known, before=x, stepped=stepped)
        y, momentum = self.accelerator.momentum.propose(
            problem, known.momentum, before=x, stepped=stepped
        )
        t, errors = known.t + 1, (*known.errors[-OVER:], after.error.clamp(min=0).sqrt())
        if t != self.look or bool(slowness(errors[0], errors[-1], t) < self.share):
            return y, Sleeping(momentum, t, errors)
        awake = self.accelerator.init(problem, stepped)
        y = stepped if bool(after.plain) else y  # as the next iteration begins
        return y, awake._replace(momentum=momentum, proposed=y)

    def judged(self, memory: Any, rose: Bool[Tensor, ""]) -> Any:
        if not isinstance(memory, Sleeping):
            return self.accelerator.judged(memory, rose)
        return memory._replace(momentum=self.accelerator.momentum.judged(memory.momentum, rose))
