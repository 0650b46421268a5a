"""Updates of the any-rank network on several batches at once, replayed as CUDA graphs on a GPU.

A batch of iterations is thousands of small kernels. They are captured once for each shape; batches
of different shapes, which alone would leave most of a GPU idle, run side by side in lanes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from factormer.accelerate.base import RestartedState
from factormer.accelerate.cuda_graph import map_tensors, tensors
from factormer.nn.anyrank import AnyRankNetwork
from factormer.problem.problem import Problem
from factormer_lab.train.anyrank.config import AnyRankTraining
from factormer_lab.train.anyrank.pool import Entry
from factormer_lab.train.anyrank.rollout import Outcome, learned, unrolled_loss
from factormer_lab.train.weights import Averaged


class Work(NamedTuple):
    """The next step of a lane: a batch of a bucket, and the updates since that batch began."""

    bucket: int
    batch: int
    age: int


class Result(NamedTuple):
    """Gradients, outcome, and the state to continue from."""

    gradients: list[Tensor]
    outcome: Outcome
    state: RestartedState


class Graph(NamedTuple):
    """A CUDA graph with the tensors that it reads and those that it writes."""

    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    result: Result


class Lane:
    """A batch that is being followed, and on a GPU a stream with its graphs."""

    def __init__(self, on_gpu: bool):
        self.state: RestartedState | None = None
        self.stream = torch.cuda.Stream() if on_gpu else None
        self.graphs: dict[int, Graph] = {}
        self.memory: Any = None  # one pool of GPU memory: graphs of a lane take turns


class Learner:
    """The network that learns, and the lanes that it learns from."""

    def __init__(self, model: AnyRankNetwork, config: AnyRankTraining, pool: list[Entry]):
        self.config, self.model, self.pool = config, model, pool
        self.learned = Averaged(
            model, weight_decay=config.weight_decay, clip=config.clip, ema=config.ema
        )
        self.weights = self.learned.weights
        self.on_gpu = self.weights[0].is_cuda
        self.lanes = [Lane(self.on_gpu) for _ in range(config.lanes)]

    def step(self, works: list[Work], lr: float) -> Outcome:
        """One update on a batch from every lane."""
        results = [self._run(*pair) for pair in zip(self.lanes, works, strict=True)]
        for lane in self.lanes:
            if lane.stream is not None:
                torch.cuda.current_stream().wait_stream(lane.stream)
        by_weight = zip(*(result.gradients for result in results), strict=True)
        gradients = [torch.stack(parts).mean(dim=0) for parts in by_weight]
        self.learned.update(gradients, lr)
        outcomes = zip(*(result.outcome for result in results), strict=True)
        return Outcome(*(torch.stack(values).mean() for values in outcomes))

    def _run(self, lane: Lane, work: Work) -> Result:
        entry, config = self.pool[work.bucket], self.config
        members = slice(work.batch * config.batch, (work.batch + 1) * config.batch)
        first = work.age * config.n_iter
        if lane.stream is None:
            state = self._state(lane, work, members)
            reference = entry.reference[first : first + config.n_iter, members]
            result = self._gradients(
                entry.bucket.problem(members), state, reference, entry.best[members], entry.solver
            )
            lane.state = result.state
            return result
        lane.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(lane.stream):
            state = self._state(lane, work, members)
            reference = entry.reference[first : first + config.n_iter, members]
            inputs = [entry.bucket.V[members], reference, entry.best[members], *tensors(state)]
            if work.bucket not in lane.graphs:
                lane.graphs[work.bucket] = self._capture(lane, entry, inputs, state)
            captured = lane.graphs[work.bucket]
            for target, source in zip(captured.inputs, inputs, strict=True):
                target.copy_(source)
            captured.graph.replay()
            lane.state = map_tensors(torch.clone, captured.result.state)
        return captured.result

    def _state(self, lane: Lane, work: Work, members: slice) -> RestartedState:
        """Return the point of the lane, or the start of a new batch."""
        if work.age and lane.state is not None:
            return lane.state
        entry = self.pool[work.bucket]
        problem, x0 = entry.bucket.problem(members), entry.bucket.start(members)
        return learned(self.model, entry.solver).init(problem, x0)

    def _gradients(
        self, problem: Problem, state: RestartedState, reference: Tensor, best: Tensor, base: Any
    ) -> Result:
        """Gradients of the mean loss, each going back through a few iterations only."""
        solver, outcomes = learned(self.model, base), []
        parts = reference.split(self.config.truncate)
        total = [torch.zeros_like(weight) for weight in self.weights]
        for part in parts:
            state = map_tensors(torch.detach, state)
            weights = {"refusal": self.config.refusal, "none": self.config.none}
            outcome, state = unrolled_loss(solver, problem, state, part, best, **weights)
            gradients = torch.autograd.grad(outcome.loss / len(parts), self.weights)
            total = [a + b for a, b in zip(total, gradients, strict=True)]
            outcomes.append(Outcome(*(value.detach() for value in outcome)))
        means = (torch.stack(values).mean() for values in zip(*outcomes, strict=True))
        return Result(total, Outcome(*means), map_tensors(torch.detach, state))

    def _capture(
        self, lane: Lane, entry: Entry, inputs: list[Tensor], state: RestartedState
    ) -> Graph:
        static = [tensor.clone() for tensor in inputs]
        V, reference, best, *rest = static
        remaining = iter(rest)
        own = map_tensors(lambda _: next(remaining), state)
        problem = entry.bucket.of(V)
        arguments = (problem, own, reference, best, entry.solver)
        self._gradients(*arguments)  # once uncaptured, to initialise libraries
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=lane.memory, stream=lane.stream):
            result = self._gradients(*arguments)
        lane.memory = graph.pool()
        return Graph(graph, static, result)

    @property
    def average(self) -> AnyRankNetwork:
        return self.learned.average

    def state(self) -> dict[str, Any]:
        """All that changes but the lanes."""
        return self.learned.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to a state."""
        self.learned.restore(state)
