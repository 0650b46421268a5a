"""Plan: the start, stages and last steps of a request; it explains itself when printed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

from factormer.run.request import Request
from factormer.run.thresholds import TOGETHER
from factormer.solvers.base import Solver
from factormer.starts import Initializer

_ENDS = {  # by each rule of `Request.stop`
    "auto": "half as many iterations again would lower the error by less than {tol:g} of it",
    "gradient": "the projected gradient is {tol:g} of the first",
    "sklearn": "ten iterations lower the error by less than {tol:g} of the first",
}


class Way(Enum):
    """What carries a plan out; the value is what `engine` calls it."""

    CORE = "core"
    REFERENCE = "reference"


class View(Enum):
    """What a stage works on."""

    ITSELF = "V"
    SINGLE = "V in float32"
    SKETCH = "a sketch of V"


class Stage(NamedTuple):
    """A view of V, a solver for it and why, and the iteration to end at.

    `exact` says whether errors there are those on V. The core also needs the precision of the
    iterations, and the width of a sketch.
    """

    view: View
    solver: Solver[Any]
    name: str
    why: str
    max_iter: int
    exact: bool = True
    precision: str = ""
    width: int = 0
    keep: float = 1.0  # the share of several runs that goes on to the next stage


class Explanation(NamedTuple):
    """A plan in words, without data: the request, and for each part what was chosen and why."""

    asked: str
    start: str
    stages: tuple[str, ...]
    finish: str
    measure: str = "RMSE"  # what is minimised, or stands for it
    engine: str = Way.REFERENCE.value

    def __str__(self) -> str:
        parts = [("start", self.start)]
        parts += [(f"stage {k}", text) for k, text in enumerate(self.stages, 1)]
        parts += [("finish", self.finish), ("engine", self.engine)]
        lines = [f"{title:<8} {text}".replace("\n", "\n" + 9 * " ") for title, text in parts]
        return "\n".join([self.asked, *lines])

    def __repr__(self) -> str:
        return str(self)


def _seen(stage: Stage) -> str:
    """What a stage works on, in words."""
    if stage.view is View.SKETCH and stage.width:
        return f"a sketch of V of width {stage.width}, in {stage.precision}"
    if stage.precision == "mixed":
        return "V, in float32 until its rounding errors matter"
    return stage.view.value


@dataclass(frozen=True, eq=False)
class Plan:
    """How a request is carried out."""

    request: Request
    start: Initializer
    start_name: str
    start_why: str
    restart: Initializer  # of the runs after the first, if there are several
    n_runs: int  # of which the best is kept
    stages: tuple[Stage, ...]
    settles: bool
    kinds: tuple[Initializer, ...] = ()  # of starts in turn, if runs are side by side
    way: Way = Way.REFERENCE

    @property
    def at_once(self) -> int:
        """How many runs are made side by side."""
        return TOGETHER if self.kinds else 1

    @property
    def max_iter(self) -> int:
        """Iterations at most, of all runs that follow each other."""
        return self.request.limits.max_iter * -(-self.request.n_init // self.at_once)

    @cached_property
    def explanation(self) -> Explanation:
        """The plan in words."""
        start = f"{self.start_name}: {self.start_why}"
        if self.n_runs > 1:
            start += f"; {self.n_runs} runs, of which the best is kept"
        drops = any(stage.keep < 1 for stage in self.stages)
        if self.kinds or drops:
            others = [type(kind).__name__.lower() for kind in self.kinds[1:]]
            turns = f", from {', '.join([self.start_name, *others])} in turn" if others else ""
            later = "; then a few more that are made of the best"
            if self.way is Way.CORE:
                later = "; the better of them go on" if drops else ""
            start += f"\n(side by side{turns}{later})"
        stages = [(f"{s.name} on {_seen(s)}: {s.why}", s.max_iter) for s in self.stages]
        return self._explained(start, stages)

    def carried_out(self, start: str | None, *stages: str) -> Explanation:
        """Return the plan in words where another way carried it out, by these stages.

        Without a `start` in words, the run began as planned.
        """
        limit = self.request.limits.max_iter
        said = self.explanation.start if start is None else start
        return self._explained(said, [(stage, limit) for stage in stages])

    def _explained(self, start: str, stages: list[tuple[str, int]]) -> Explanation:
        """Return the plan in words with these stages, each with the iteration that it ends at."""
        last = len(stages) - 1
        said = [
            f"{what}\n{self._until(max_iter, k == last)}"
            for k, (what, max_iter) in enumerate(stages)
        ]
        measure, engine = self.request.problem.measure, self.way.value
        return Explanation(self._asked(), start, tuple(said), self._finish(), measure, engine)

    def __str__(self) -> str:
        return str(self.explanation)

    def _asked(self) -> str:
        problem = self.request.problem
        V = problem.V
        size = "×".join(map(str, V.shape))
        kind, dtype = type(V).__name__.lower(), str(V.dtype).removeprefix("torch.")
        loss = "squared error"
        if not problem.is_plain:
            terms = [*problem.on_w.terms, *problem.on_h.terms]
            known = problem.loss.kernel_beta is not None
            loss = f"β-divergence, {problem.loss}" if known else str(problem.loss)
            loss += f", with {', '.join(type(term).__name__ for term in terms)}" if terms else ""
        if self.request.is_symmetric:
            loss += ", V ≈ H Hᵀ"
        return f"V {size}, {kind}, {dtype}, on {V.device}; rank {problem.rank}; {loss}"

    def _until(self, max_iter: int, is_last: bool) -> str:
        limits = self.request.limits
        ends = [f"until iteration {max_iter}"]
        if limits.tol:
            ends.append(_ENDS[self.request.stop].format(tol=limits.tol))
        if limits.time_limit is not None:
            ends.append(f"{limits.time_limit:g} s")
        if not is_last and self.way is Way.REFERENCE:
            ends.append("an iteration gains little")
        return ", or ".join(ends)

    def _finish(self) -> str:
        request = self.request
        settle = "W as the last iteration leaves it"
        if self.settles:
            settle = "W made the best for H, as transform would"
        if request.keeps_order:
            return f"{settle}; components as given"
        order = "components by share" if request.order else "components as they come"
        scale = f", {request.scale}" if request.scale and request.is_free else ""
        return f"{settle}; {order}{scale}"
