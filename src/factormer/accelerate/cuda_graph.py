"""Iterations on a GPU, recorded once and replayed: hundreds of small kernels at one command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from factormer.accelerate.base import Restarted, Resumable
from factormer.data import Dense, LowRank
from factormer.problem.problem import Problem
from factormer.problem.products import RESOLVED


class Recording(NamedTuple):
    """A CUDA graph of one iteration, which takes the state that it finds here to the next."""

    graph: torch.cuda.CUDAGraph
    state: Resumable

    def replayed(self) -> Resumable:
        """The state after one more iteration; the next one overwrites it."""
        self.graph.replay()
        return self.state


@dataclass(frozen=True)
class Replayed(Restarted):
    """A restarted solver whose iterations never ask a GPU for a number: they can be recorded.

    On a GPU a small kernel takes longer to launch than to run. An iteration is recorded once for
    each problem, as a CUDA graph, and replayed; the state is copied in before and out after. It
    cannot look whether an error from products has digits enough: where some may not, or had not,
    another is recorded and replayed, which looks at the entries of V as well.
    """

    _recordings: WeakKeyDictionary[Problem, dict[bool, Recording]] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

    def leap(
        self, problem: Problem, state: Resumable, n_iter: int
    ) -> tuple[Resumable, Float[Tensor, "n *b"]]:
        """The state after up to `n_iter` steps and the error after each.

        None are made except on a GPU, and none on sparse data. Which recording makes an iteration
        depends on the errors before and after it alone, never on `n_iter`.
        """
        V = problem.V
        if V.device.type != "cuda" or not isinstance(V, Dense | LowRank):
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
        unclear[0] = True  # the other recording was tried
        n_made = _leading(unclear)
        if n_made == n_iter:
            return after, errors
        return self._replay(problem, state, n_made, resolved=False)

    def _replay(
        self, problem: Problem, state: Resumable, n_iter: int, *, resolved: bool
    ) -> tuple[Resumable, Float[Tensor, "n *b"]]:
        recordings = self._recordings.setdefault(problem, {})
        if resolved not in recordings:
            recordings[resolved] = self._record(replace(problem, resolved=resolved), state)
        recording = recordings[resolved]
        _copy(state, recording.state)
        errors = torch.stack([recording.replayed().error.clone() for _ in range(n_iter)])
        return map_tensors(torch.clone, recording.state), errors

    def _record(self, problem: Problem, state: Resumable) -> Recording:
        own = map_tensors(torch.clone, state)
        aside = torch.cuda.Stream(problem.V.device)
        aside.wait_stream(torch.cuda.current_stream(problem.V.device))
        with torch.cuda.stream(aside):
            self.step(problem, own)  # once without recording, so that libraries are set up
        torch.cuda.current_stream(problem.V.device).wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=aside, capture_error_mode="thread_local"):
            _copy(_apart(self.step(problem, own), own), own)
        return Recording(graph, own)


def _before(state: Resumable, errors: Float[Tensor, "n *b"]) -> Float[Tensor, "n *b"]:
    """The error before each iteration, from those after."""
    return torch.cat([state.error[None], errors[:-1]])


def _each(claims: Bool[Tensor, "n *b"]) -> Bool[Tensor, " n"]:
    """Whether a claim is true of every problem of the stack, for each iteration."""
    return claims.flatten(1).all(dim=1) if claims.dim() > 1 else claims


def _leading(claims: Bool[Tensor, " n"]) -> int:
    """How many of the first are true."""
    return int(claims.long().cumprod(dim=0).sum())


def _apart(state: Any, other: Any) -> Any:
    """The state, with copies of what it shares with the other."""
    shared = {t.untyped_storage().data_ptr() for t in tensors(other)}
    return map_tensors(
        lambda t: t.clone() if t.untyped_storage().data_ptr() in shared else t, state
    )


def _copy(source: Any, target: Any) -> None:
    for a, b in zip(tensors(source), tensors(target), strict=True):
        b.copy_(a)


def map_tensors(f: Callable[[Tensor], Tensor], state: Any) -> Any:
    """The same nest of named tuples with f of every tensor."""
    if isinstance(state, Tensor):
        return f(state)
    if state is None:
        return None
    return type(state)(*(map_tensors(f, part) for part in state))


def tensors(state: Any) -> list[Tensor]:
    """Every tensor in a nest of named tuples, in order."""
    found: list[Tensor] = []
    map_tensors(lambda t: (found.append(t), t)[1], state)
    return found
