"""Between two passes over V, iterate on a small matrix that has the same products."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from jaxtyping import Bool
from torch import Tensor

from factormer.accelerate.base import Adaptive, Judged, RestartedState, Resumable
from factormer.accelerate.extrapolate import Extrapolation
from factormer.accelerate.her import HER
from factormer.data import Dense, LowRank, Matrix, agreeing
from factormer.data.factors import Factors
from factormer.data.split import Split
from factormer.problem.problem import Problem
from factormer.problem.products import RESOLVED
from factormer.solvers.base import Solver
from factormer.solvers.hals import HALS, HALSState
from factormer.solvers.loop import loop

# Cost of a multiplication relative to one in a product with V: thin factors use a core less well.
_THIN = 2.0
_SWEEP = 4.0
_LAUNCHES = 3e8  # entries that a GPU reads while it begins the kernels of an iteration


class Ahead(NamedTuple):
    """The end of the last iterations ahead, their number, and the memories of accelerators.

    These iterations predicted the error `promised`; the share `trust` of the last predicted gain
    was real. `rest` iterations on V are made before the next ones ahead, or 2·`pause` if these do
    not pay.
    """

    factors: Factors
    made: int
    promised: float
    trust: float
    rest: int
    pause: int
    memory: Any
    resting: Any


@dataclass(frozen=True)
class Lookahead(Judged):
    """HALS on one matrix V, and after an iteration several of another solver on V̂.

    An iteration reads V twice, for VᵀW and VH. V̂ is the matrix of rank 2r that gives those same
    products (`agreeing`): near (W, H) it equals V up to terms of second order, and where V is large
    an iteration on it costs little. The accelerator sees where they end, the next iteration on V
    begins where it proposes, and that one is judged at its end like any other.

    Iterations ahead are made `at_once` of them at a time, up to `n_ahead` (`first` after the first
    iteration), as long as they lower the error by more for their cost than the last iteration on V
    did with those before it. A predicted gain is weighted by how much of the last one was real. If
    the first few do not pay, V̂ is too far from V: the next 2 iterations on V skip them, then 4, 8,
    … until some pay again. Meanwhile the accelerator `resting` proposes, for example a network.
    """

    solver: HALS = field(default_factory=HALS)
    ahead: Solver[Any] = field(default_factory=HER)
    accelerator: Adaptive[Any] = field(default_factory=Extrapolation)
    resting: Adaptive[Any] | None = None
    n_ahead: int = 40
    first: int = 8
    at_once: int = 4

    def step(self, problem: Problem, state: Resumable) -> RestartedState:
        """One iteration; a GPU makes its products on tensor cores while that is precise enough."""
        V = problem.V
        if V.device.type == "cuda" and isinstance(V, Dense):
            least = RESOLVED[V.dtype] * V.sq_norm()
            if bool(state.error > 2 * least):
                problem = replace(problem, V=Split.of(V))
        return super().step(problem, state)

    def memory(self, problem: Problem, x0: Factors) -> Ahead:
        resting = self.resting and self.resting.init(problem, x0)
        return Ahead(x0, 0, 0.0, 1.0, 0, 1, self.accelerator.init(problem, x0), resting)

    def proposal(
        self, problem: Problem, before: Resumable, after: RestartedState
    ) -> tuple[Factors, Ahead]:
        x, last = after.factors, before.memory
        if bool(after.plain):  # refused: the next iteration has none ahead of it, and begins at x
            return x, last._replace(factors=x, made=0)
        if last.rest:
            return self._at_rest(problem, before, x)
        trust = last.trust
        if last.made:
            came, promise = float(before.error - after.error), float(before.error) - last.promised
            trust = min(max(came / promise, 0.0), 1.0) if promise > 0 else 0.0
        z, made, promised = self._ahead(problem, before, after, trust)
        y, memory = self.accelerator.propose(problem, last.memory, before=last.factors, stepped=z)
        pause = 1 if made > self.at_once else 2 * last.pause
        rest = 0 if pause == 1 else pause
        resting = self.resting and self.resting.init(problem, z)
        return y, Ahead(z, made, promised, trust, rest, pause, memory, resting)

    def judged(self, memory: Ahead, rose: Bool[Tensor, ""]) -> Ahead:
        resting = self.resting and self.resting.judged(memory.resting, rose)
        return memory._replace(memory=self.accelerator.judged(memory.memory, rose), resting=resting)

    def _at_rest(self, problem: Problem, before: Resumable, x: Factors) -> tuple[Factors, Ahead]:
        last = before.memory
        now = last._replace(factors=x, made=0, rest=last.rest - 1)
        if self.resting is None:
            y, memory = self.accelerator.propose(
                problem, last.memory, before=last.factors, stepped=x
            )
            return y, now._replace(memory=memory)
        y, memory = self.resting.propose(problem, last.resting, before=before.factors, stepped=x)
        return y, now._replace(resting=memory)

    def _ahead(
        self, problem: Problem, before: Resumable, after: RestartedState, trust: float
    ) -> tuple[Factors, int, float]:
        """Return the end of the iterations on V̂ that pay, their number, and the error to expect."""
        stepped: HALSState = after.inner
        assert stepped.read is not None
        assert stepped.known is not None
        x, error = after.factors, after.error
        known = Problem(agreeing(problem.V, *stepped.read, x.H, stepped.known.VtW), problem.rank)
        cost = self._cost(problem) / self._cost(known) + before.memory.made
        begun = bool(before.error.isfinite())
        usual = (before.error - error) / cost if begun else 0.0
        limit = self.n_ahead if begun else self.first
        looks = loop(known, self.ahead, x, limit=limit, at_most=self.at_once)
        look = next(looks)
        for look in looks:
            if look.t % self.at_once == 0:
                gain, error = error - look.errors[-1], look.errors[-1]
                if bool(trust * gain < self.at_once * usual):
                    break
        return look.factors, look.t, float(error)

    def _cost(self, problem: Problem) -> float:
        """The cost of an iteration, in multiplications of a product with V; on a GPU in entries."""
        V, r = problem.V, problem.rank
        if V.device.type == "cuda":
            return 2 * float(V.work()) + _LAUNCHES
        (m, n), thin = V.shape, _THIN if isinstance(V, LowRank) else 1.0
        sweeps = n * self._sweeps(V, r) + m * self._sweeps(V.T, r)
        return 2 * thin * r * float(V.work()) + _SWEEP * r * r * sweeps

    def _sweeps(self, V: Matrix, r: int) -> int:
        return int(self.solver.n_sweeps(V, r))
