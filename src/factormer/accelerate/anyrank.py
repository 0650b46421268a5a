"""The learned accelerator for every rank and size: extrapolation, with what a network adds to it.

The solver's own products are the messages between rows and columns: VᵀW and WᵀW are all that an
update of H knows of V, and the moves that they lead to are all that the network looks at. It adds
O((m + n)r) to an iteration; the solver has the Gram matrices anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from factormer import kernels
from factormer.accelerate.extrapolate import Extrapolation, Momentum
from factormer.accelerate.moves import Moves, Track
from factormer.data.factors import Factors
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
        products = [W.products(V.rows), H.products(V.cols)]
        moves = Pooled(*torch.stack(products, dim=-2))
        gram = torch.stack([F.mT @ F for F in stepped], dim=-3)
        amounts = self.amounts(moves, gram, memory)
        moved = moves.DD.sum(dim=(-2, -1)) > 0  # else the last proposal was refused
        (y_W, moves_W), (y_H, moves_H) = (
            track.proposal(amounts[..., side, :], moved) for side, track in enumerate((W, H))
        )
        proposed = Factors(y_W, y_H)
        return proposed, memory._replace(proposed=proposed, W=moves_W, H=moves_H, t=memory.t + 1)

    def amounts(
        self, moves: Pooled, gram: Float[Tensor, "*b 2 r r"], memory: Memory
    ) -> Float[Tensor, "3 *b 2 r"]:
        """How much of D, P and S, plain extrapolation included; a distrusted network adds none."""
        progress = Progress(memory.momentum.beta, memory.age, memory.t, memory.strikes)
        if fused := kernels.fused(gram):
            sums, numbers = (torch.stack(list(part)) for part in (moves, progress))
            nodes, edges, steps = fused.look(sums, gram, numbers)
            return fused.choose(self.model.listen(nodes, edges), steps, numbers, self.patience)
        compiled = kernels.any_rank("mix") if _is_plain(gram) else None
        if compiled is None:
            trusted = memory.strikes < self.patience
            mixing = torch.stack(list(self.model(moves, gram, progress)))
            added = mixing * trusted.to(mixing.dtype)[..., None, None]
            plain = torch.zeros_like(added)
            plain[0] += memory.momentum.beta[..., None, None]
            return plain + added
        sums = torch.stack(list(moves), dim=1).double().numpy()  # (2, products, r)
        numbers = np.array([*(float(p) for p in progress), self.patience])
        room = compiled.room(gram.shape[-1], self.packed[0])
        compiled.mix()(sums, gram.double().numpy(), numbers, *self.packed, *room)
        return torch.from_numpy(room[-1]).to(gram.dtype)

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


def _is_plain(gram: Float[Tensor, "*b 2 r r"]) -> bool:
    return gram.dim() == 3 and gram.device.type == "cpu" and not torch.is_grad_enabled()
