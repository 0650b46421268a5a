"""A batch of small problems that were solved together: numbers now, results on demand."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from factormer import kernels
from factormer.many.ends import result_of
from factormer.many.jobs import Jobs
from factormer.many.results import Summaries
from factormer.run.plan import Plan
from factormer.run.result import Result, Status
from factormer.run.trace import half_square


@dataclass(frozen=True, eq=False)
class Solved:
    """Jobs of one compiled call, and what `kernels.several` made of each.

    `factors` are W and H by rows, one after the other; `histories` the errors of all on V over its
    mean. Of the `seconds` of the call each has its part, by iterations.
    """

    jobs: Jobs
    indices: np.ndarray
    plans: list[Plan]
    factors: list[np.ndarray]
    numbers: np.ndarray
    histories: np.ndarray
    seconds: float

    def summaries(self) -> Summaries:
        """The numbers of each."""
        several = kernels.several_problems()
        assert several is not None
        rmse = self.numbers[:, several.RMSE] * self.numbers[:, several.MEAN]
        status = np.array([self._status(k).name for k in range(len(self.indices))], object)
        entries = np.array([math.prod(plan.request.problem.V.shape) for plan in self.plans])
        n_iter = self.numbers[:, several.N_ITER].astype(int)
        return Summaries(rmse, half_square(rmse, entries), n_iter, status)

    def result(self, place: int) -> Result:
        """One of the results."""
        several, plan, both = kernels.several_problems(), self.plans[place], self.factors[place]
        assert several is not None
        number, (m, n), r = (
            self.numbers[place].tolist(),
            plan.request.problem.V.shape,
            plan.request.problem.rank,
        )
        mean, first, made = (number[k] for k in (several.MEAN, several.PLACE, several.N_ITER))
        history = self.histories[int(first) : int(first + made) + 1] * mean
        return result_of(
            both[: m * r].reshape(m, r),
            both[m * r :].reshape(n, r),
            self._status(place),
            history,
            self.seconds * len(history) / len(self.histories),
            number[several.RMSE] * mean,
            plan,
            plan.explanation,
            self.jobs.as_given[int(self.jobs.problem[self.indices[place]])],
        )

    def _status(self, place: int) -> Status:
        several = kernels.several_problems()
        assert several is not None
        met = self.numbers[place, several.STATUS] == several.CONVERGED
        return Status.CONVERGED if met else Status.MAX_ITER
