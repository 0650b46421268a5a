"""The learned accelerator for every rank and size: extrapolation, with what a network adds to it.

The solver's own products are the messages between rows and columns: VᵀW and WᵀW are all that an
update of H knows of V, and the moves that they lead to are all that the network looks at. It adds
O((m + n)r) to an iteration; the solver has the Gram matrices anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from factormer import kernels
from factormer.accelerate.extrapolate import Extrapolation, Momentum
from factormer.accelerate.moves import Compiled, Moves, Track
from factormer.data.factors import Factors
from factormer.kernels.threads import scratch
from factormer.nn.anyrank import AnyRankNetwork, Pooled, Progress
from factormer.problem.problem import Problem


class Memory(NamedTuple):
    """Momentum, the point that the solver begins at, the last moves, the record of proposals."""

    momentum: Momentum
    proposed: Factors
    W: Moves
    H: Moves
    age: Float[Tensor, "*b"]
    t: Float[Tensor, "*b"]
    strikes: Float[Tensor, "*b"]


@dataclass(frozen=True)
class AnyRank:
    """Propose x̂ + β(x̂ − x) and, for each component, some of the moves D, P and S on top.

    With D = x̂ − x the last move, P the one before and S = x̂ − y the solver's own, from the point y
    proposed to it. A network chooses the amounts. An untrained one chooses zeros, which leaves
    plain `momentum`; so does a network that had more than `patience` of about its last ten
    proposals refused. Where nothing moves, nothing is proposed: a stationary point stays.
    """

    model: AnyRankNetwork
    momentum: Extrapolation = field(default_factory=Extrapolation)
    patience: float = 2.5
    memory: float = 0.9  # how much of the count of refusals each proposal carries over

    def init(self, problem: Problem, x0: Factors) -> Memory:
        momentum = self.momentum.init(problem, x0)
        zero = torch.zeros_like(momentum.beta)
        W, H = (Moves(*(torch.zeros_like(F),) * 3) for F in x0)
        return Memory(momentum, x0, W, H, zero, zero, zero)

    def propose(
        self, problem: Problem, memory: Memory, *, before: Factors, stepped: Factors
    ) -> tuple[Factors, Memory]:
        V, y = problem.V, memory.proposed
        W = Track(stepped.W, before.W, y.W, memory.W)
        H = Track(stepped.H, before.H, y.H, memory.H)
        if V.rows is None and V.cols is None and (found := self._compiled(W, H, memory)):
            return found
        products = [W.products(V.rows), H.products(V.cols)]
        moves = Pooled(*torch.stack(products, dim=-2))
        gram = torch.stack([F.mT @ F for F in stepped], dim=-3)
        amounts = self.amounts(moves, gram, memory)
        moved = moves.DD.sum(dim=(-2, -1)) > 0  # else the last proposal was refused
        (y_W, moves_W), (y_H, moves_H) = (
            track.proposal(amounts[..., side, :], moved) for side, track in enumerate((W, H))
        )
        return _proposed(memory, Factors(y_W, y_H), moves_W, moves_H)

    def _compiled(self, W: Track, H: Track, memory: Memory) -> tuple[Factors, Memory] | None:
        """Propose by compiled passes, with nothing in torch between them, for small factors."""
        by_W, by_H, mixing = Compiled.of(W), Compiled.of(H), kernels.any_rank("mix")
        if by_W is None or by_H is None or mixing is None:
            return None
        sums, gram = (
            np.empty((2, mixing.N_PRODUCTS, len(by_W.X))),
            np.empty((2, *[len(by_W.X)] * 2)),
        )
        for k, (side, X) in enumerate(((by_W, W.X), (by_H, H.X))):
            side.products(sums[k])
            gram[k] = (X.mT @ X).numpy()
        if not sums[:, 2].any():  # the last proposal was refused
            return _proposed(memory, Factors(W.X, H.X), W.moves, H.moves)
        amounts = self._mixed(mixing, sums, gram, memory).astype(by_W.X.dtype)
        y_W, moves_W = by_W.proposal(amounts[:, 0].copy(), W.moves)
        y_H, moves_H = by_H.proposal(amounts[:, 1].copy(), H.moves)
        y = Factors(W.laid_out(y_W), H.laid_out(y_H))
        return _proposed(memory, y, moves_W, moves_H)

    def amounts(
        self, moves: Pooled, gram: Float[Tensor, "*b 2 r r"], memory: Memory
    ) -> Float[Tensor, "3 *b 2 r"]:
        """How much of D, P and S, plain extrapolation included; a distrusted network adds none."""
        progress = Progress(memory.momentum.beta, memory.age, memory.t, memory.strikes)
        compiled = kernels.any_rank("mix") if _is_plain(gram) else None
        if compiled is None:
            trusted = memory.strikes < self.patience
            mixing = torch.stack(list(self.model(moves, gram, progress)))
            added = mixing * trusted.to(mixing.dtype)[..., None, None]
            plain = torch.zeros_like(added)
            plain[0] += memory.momentum.beta[..., None, None]
            return plain + added
        sums = torch.stack(list(moves), dim=1).double().numpy()  # (2, products, r)
        found = self._mixed(compiled, sums, gram.double().numpy(), memory)
        return torch.from_numpy(found).to(gram.dtype, copy=True)

    def _mixed(
        self, compiled: ModuleType, sums: np.ndarray, gram: np.ndarray, memory: Memory
    ) -> np.ndarray:
        """The amounts (3, 2, r) by the compiled network; `sums` is used up, and the room reused."""
        progress = (memory.momentum.beta, memory.age, memory.t, memory.strikes)
        numbers = np.array([*(float(p) for p in progress), self.patience])
        config = self.model.config
        sizes = (config.width, config.messages, config.n_layers)
        room = scratch(compiled.room, gram.shape[-1], sizes)
        compiled.mix()(sums, gram, numbers, *self.packed, *room)
        return room[-1]

    @cached_property
    def packed(self) -> tuple[np.ndarray, np.ndarray]:
        """Width, messages and layers of the network, and its weights one after another."""
        config, layers = self.model.config, self.model.layers
        sizes = np.array([config.width, config.messages, config.n_layers])
        hidden = (part for pair in zip(self.model.send, layers, strict=True) for part in pair)
        parts = (self.model.embed, *hidden, self.model.extract)
        weights = [weight.detach() for part in parts for weight in part.parameters()]
        return sizes, torch.cat([weight.double().cpu().flatten() for weight in weights]).numpy()

    def judged(self, memory: Memory, rose: Bool[Tensor, "*b"]) -> Memory:
        """The memory after an iteration from the proposal; `rose`: whether the loss increased."""
        return memory._replace(
            momentum=self.momentum.judged(memory.momentum, rose),
            age=torch.where(rose, torch.zeros_like(memory.age), memory.age + 1),
            strikes=self.memory * memory.strikes + rose.to(memory.strikes.dtype),
        )


def _proposed(memory: Memory, y: Factors, W: Moves, H: Moves) -> tuple[Factors, Memory]:
    return y, memory._replace(proposed=y, W=W, H=H, t=memory.t + 1)


def _is_plain(gram: Float[Tensor, "*b 2 r r"]) -> bool:
    return gram.dim() == 3 and gram.device.type == "cpu" and not torch.is_grad_enabled()
