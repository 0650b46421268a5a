"""The learned accelerator for every rank and size: extrapolation, with what a network adds to it.

The solver's own products are the messages between rows and columns: VᵀW and WᵀW are all that an
update of H knows of V, and the moves that they lead to are all that the network looks at. It adds
O((m + n)r) to an iteration, beside the Gram matrices that the solver has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from factormer.accelerate.extrapolate import Extrapolation, Momentum
from factormer.factors import Factors
from factormer.nn.anyrank import AnyRankNetwork, Mixing, Pooled, Progress
from factormer.problem import Problem


class Moves(NamedTuple):
    """The last moves of one factor: its own but the newest, and the solver's (see `Pooled`)."""

    P: Float[Tensor, "*b n r"]
    T: Float[Tensor, "*b n r"]
    U: Float[Tensor, "*b n r"]


class Memory(NamedTuple):
    """Momentum, the point that the solver begins at, the last moves, how proposals fared."""

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
    proposed to it. A network chooses the amounts; those of one that has not learned anything are
    zero, and the accelerator is `momentum`. So it is where more than `patience` of the last ten or
    so proposals were refused. Where nothing moves, nothing is proposed: a stationary point stays.
    """

    model: AnyRankNetwork
    momentum: Extrapolation = field(default_factory=Extrapolation)
    patience: float = 2.5
    memory: float = 0.9  # share of a refusal that is still held against the network one later

    def init(self, problem: Problem, x0: Factors) -> Memory:
        momentum = self.momentum.init(problem, x0)
        zero = torch.zeros_like(momentum.beta)
        W, H = (Moves(*(torch.zeros_like(F),) * 3) for F in x0)
        return Memory(momentum, x0, W, H, zero, zero, zero)

    def propose(
        self, problem: Problem, memory: Memory, *, before: Factors, stepped: Factors
    ) -> tuple[Factors, Memory]:
        V, y = problem.V, memory.proposed
        plain, _ = self.momentum.propose(problem, memory.momentum, before=before, stepped=stepped)
        D = Factors(stepped.W - before.W, stepped.H - before.H)
        S = Factors(stepped.W - y.W, stepped.H - y.H)
        WtW, HtH = (F.mT @ F for F in stepped)
        W = pooled(stepped.W, WtW, D.W, S.W, memory.W, V.rows)
        H = pooled(stepped.H, HtH, D.H, S.H, memory.H, V.cols)
        progress = Progress(memory.momentum.beta, memory.age, memory.t, memory.strikes)
        mixing = self.model(W, H, WtW, HtH, progress)
        trusted = memory.strikes < self.patience
        learned = Factors(
            plain.W + _mixed(mixing[0], trusted, D.W, memory.W.P, S.W),
            plain.H + _mixed(mixing[1], trusted, D.H, memory.H.P, S.H),
        )
        moved = (W.DD.sum(dim=-1) + H.DD.sum(dim=-1) > 0)[..., None, None]  # else it was refused
        return learned, memory._replace(
            proposed=Factors(
                *(torch.where(moved, a, b) for a, b in zip(learned, stepped, strict=True))
            ),
            W=_after(moved, memory.W, D.W, S.W),
            H=_after(moved, memory.H, D.H, S.H),
            t=memory.t + 1,
        )

    def judged(self, memory: Memory, rose: Bool[Tensor, "*b"]) -> Memory:
        """The memory after an iteration that began at the proposal, and raised the loss or not."""
        return memory._replace(
            momentum=self.momentum.judged(memory.momentum, rose),
            age=torch.where(rose, torch.zeros_like(memory.age), memory.age + 1),
            strikes=self.memory * memory.strikes + rose.to(memory.strikes.dtype),
        )


def pooled(
    X: Float[Tensor, "*b n r"],
    XtX: Float[Tensor, "*b r r"],
    D: Float[Tensor, "*b n r"],
    S: Float[Tensor, "*b n r"],
    moves: Moves,
    real: Bool[Tensor, "*b n"] | None,
) -> Pooled:
    """The inner products of one factor's moves; rows that pad a stack do not count."""
    P, T, U = moves

    def dot(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum(dim=-2)

    XX = XtX.diagonal(dim1=-2, dim2=-1)
    is_zero = (1e-8 * XX.sqrt()[..., None, :] >= X).to(X.dtype)  # up to rounding
    if real is None:
        zeros = is_zero.mean(dim=-2)
    else:
        weight = real.to(X.dtype)[..., None]
        zeros = (is_zero * weight).sum(dim=-2) / weight.sum(dim=-2).clamp(min=1)
    return Pooled(
        XX=XX,
        XD=dot(X, D),
        DD=dot(D, D),
        DP=dot(D, P),
        PP=dot(P, P),
        SD=dot(S, D),
        SS=dot(S, S),
        ST=dot(S, T),
        SU=dot(S, U),
        TT=dot(T, T),
        TU=dot(T, U),
        UU=dot(U, U),
        zeros=zeros,
    )


def _mixed(
    mixing: Mixing, trusted: Bool[Tensor, "*b"], D: Tensor, P: Tensor, S: Tensor
) -> Float[Tensor, "*b n r"]:
    trust = trusted.to(D.dtype)[..., None]
    d, p, s = ((trust * amount)[..., None, :] for amount in mixing)
    return d * D + p * P + s * S


def _after(moved: Bool[Tensor, "*b 1 1"], moves: Moves, D: Tensor, S: Tensor) -> Moves:
    newest = Moves(D, S, moves.T)
    return Moves(*(torch.where(moved, a, b) for a, b in zip(newest, moves, strict=True)))
