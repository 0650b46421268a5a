"""Iterations captured as a CUDA graph and replayed: one launch instead of hundreds of kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from factormer.accelerate.base import Restarted, Resumable
from factormer.accelerate.fused import Fused
from factormer.data import Dense, LowRank, Sparse, readings
from factormer.data.split import Split
from factormer.problem.problem import Problem
from factormer.problem.products import RESOLVED


class Graph(NamedTuple):
    """A captured iteration, which reads V so often: `replay` advances `state` in place by one."""

    graph: torch.cuda.CUDAGraph
    state: Resumable
    passes: int
    held: Any  # memory that it reads and writes
    last: dict[str, Any]  # a copy of the state that it is in

    def replay(self) -> Resumable:
        """The state after one more iteration; the next replay overwrites it."""
        self.graph.replay()
        readings.add(self.passes)
        return self.state


@dataclass(frozen=True)
class Captured(Restarted):
    """A restarted solver whose iterations run as a CUDA graph on a GPU.

    A small kernel takes longer to launch than to run. So an iteration, which never waits for a
    number from the GPU, is captured once per problem and replayed; states are copied in and out.
    It cannot check whether an error from products has enough digits. Where one may not, or had not,
    a second graph is captured and replayed, which also reads the entries of V. The first makes its
    products on tensor cores where V is large (`data.split`): that is precise enough as long as
    errors from products are. For one matrix in float32 it has few kernels (`accelerate.fused`).
    Matrices of low rank share the graphs of their size: `Lookahead` makes one after another.
    """

    _graphs: WeakKeyDictionary[Problem, dict[bool, Graph]] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )
    _stands: dict[tuple[Any, ...], StandIn] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def leap(
        self, problem: Problem, state: Resumable, n_iter: int
    ) -> tuple[Resumable, Float[Tensor, "n *b"]]:
        """The state after up to `n_iter` steps and the error after each.

        None are made except on a GPU. Which graph makes an iteration
        depends only on the errors before and after it, never on `n_iter`.
        """
        V = problem.V
        if V.device.type != "cuda" or not isinstance(V, Dense | LowRank | Sparse):
            return state, torch.empty(0)
        least = RESOLVED[V.dtype] * V.sq_norm()
        n_resolved = 0
        if bool((state.error > 2 * least).all()):
            after, errors = self._replay(problem, state, n_iter, resolved=True)
            clear = _each(_before(state, errors) > 2 * least) & _each(errors >= least)
            n_resolved = _leading(clear)
            if n_resolved == n_iter:
                return after, errors
        if n_resolved:
            return self._replay(problem, state, n_resolved, resolved=True)
        after, errors = self._replay(problem, state, n_iter, resolved=False)
        unclear = ~_each(_before(state, errors) > 2 * least)
        unclear[0] = True  # the other graph was tried
        n_made = _leading(unclear)
        if n_made == n_iter:
            return after, errors
        return self._replay(problem, state, n_made, resolved=False)

    def _replay(
        self, problem: Problem, state: Resumable, n_iter: int, *, resolved: bool
    ) -> tuple[Resumable, Float[Tensor, "n *b"]]:
        if isinstance(problem.V, LowRank):
            problem = self._stand_in(problem, problem.V)
        graphs = self._graphs.setdefault(problem, {})
        if resolved not in graphs:
            V = Split.of(problem.V) if resolved and isinstance(problem.V, Dense) else problem.V
            graphs[resolved] = self._capture(replace(problem, V=V, resolved=resolved), state)
        graph = graphs[resolved]
        if graph.last.pop("state", None) is not state:  # else it is still there
            _copy(state, graph.state)
        errors = torch.stack([graph.replay().error.clone() for _ in range(n_iter)])
        after = map_tensors(torch.clone, graph.state)
        graph.last["state"] = after
        return after, errors

    def _stand_in(self, problem: Problem, V: LowRank) -> Problem:
        """A problem of that size, which is recorded once for all such, with the numbers of V."""
        width = math.ceil(max(V.U.shape[1] / problem.rank, 2)) * problem.rank
        key = (V.shape, width, problem.rank, V.dtype, V.device)
        if key not in self._stands:
            self._stands[key] = StandIn.of(problem, V, width)
        return self._stands[key].playing(V)

    def _capture(self, problem: Problem, state: Resumable) -> Graph:
        own = map_tensors(lambda t: t.clone(memory_format=torch.contiguous_format), state)
        fused = Fused.of(self.solver, self.accelerator, problem, own)

        def iterate() -> Any:
            return self._in_place(problem, own) if fused is None else fused()

        side = torch.cuda.Stream(problem.V.device)
        side.wait_stream(torch.cuda.current_stream(problem.V.device))
        with torch.cuda.stream(side):
            held = iterate()  # once uncaptured, to initialise libraries
        torch.cuda.current_stream(problem.V.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        capture = torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local")
        with readings.counted() as count, capture:
            held = iterate()
        return Graph(graph, own, count.passes, (fused, held), {})

    def _in_place(self, problem: Problem, own: Resumable) -> None:
        """An iteration that overwrites the state."""
        _copy(_unshared(self.step(problem, own), own), own)


class StandIn(NamedTuple):
    """A problem on a matrix of low rank, whose numbers are replaced by those of another."""

    problem: Problem
    V: LowRank
    played: list[LowRank]  # the last, if any

    @staticmethod
    def of(problem: Problem, V: LowRank, width: int) -> StandIn:
        """For matrices of up to so many columns; others are zero."""
        U, Z = (F.new_zeros(len(F), width) for F in (V.U, V.Z))
        own = LowRank(U, Z, torch.empty_like(V.lost))
        own.__dict__["_sq_norm"] = torch.empty_like(V.sq_norm())  # a number that can be replaced
        return StandIn(replace(problem, V=own), own, [])

    def playing(self, V: LowRank) -> Problem:
        """The problem, with the numbers of V."""
        if not self.played or self.played[0] is not V:
            for own, F in ((self.V.U, V.U), (self.V.Z, V.Z)):
                own[:, : F.shape[1]] = F
                own[:, F.shape[1] :] = 0
            self.V.lost.copy_(V.lost)
            self.V.sq_norm().copy_(V.sq_norm())
            self.played[:] = [V]
        return self.problem


def _before(state: Resumable, errors: Float[Tensor, "n *b"]) -> Float[Tensor, "n *b"]:
    """The error before each iteration, from those after."""
    return torch.cat([state.error[None], errors[:-1]])


def _each(claims: Bool[Tensor, "n *b"]) -> Bool[Tensor, " n"]:
    """Whether a claim holds for every problem of the stack, for each iteration."""
    return claims.flatten(1).all(dim=1) if claims.dim() > 1 else claims


def _leading(claims: Bool[Tensor, " n"]) -> int:
    """How many claims hold before the first that does not."""
    return int(claims.long().cumprod(dim=0).sum())


def _unshared(state: Any, other: Any) -> Any:
    """The state, with copies of tensors that share memory with the other."""
    shared = {t.untyped_storage().data_ptr() for t in tensors(other)}
    return map_tensors(
        lambda t: t.clone() if t.untyped_storage().data_ptr() in shared else t, state
    )


def _copy(source: Any, target: Any) -> None:
    for a, b in zip(tensors(source), tensors(target), strict=True):
        b.copy_(a)


def map_tensors(f: Callable[[Tensor], Tensor], state: Any) -> Any:
    """Apply f to every tensor in nested named tuples."""
    if isinstance(state, Tensor):
        return f(state)
    if state is None:
        return None
    return type(state)(*(map_tensors(f, part) for part in state))


def tensors(state: Any) -> list[Tensor]:
    """Every tensor in nested named tuples, in order."""
    found: list[Tensor] = []
    map_tensors(lambda t: (found.append(t), t)[1], state)
    return found
