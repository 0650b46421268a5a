"""The any-rank network: the r components of a factorization as a small graph, without V.

A node is a component. Its features are inner products, pooled over the rows of a factor, of the
last moves of the iteration; edges are the cosines in WᵀW and HᵀH, which the solver has anyway.
The output is a few coefficients per component, with which an accelerator combines those moves.
Weights are shared by all components, so one network serves every rank and size; every feature is a
ratio, so it serves every scale of V. Shapes: r rank, d width, *b batch axes; an axis of 2 is for W
and H.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

_FLOOR = 1e-14  # squared moves, relative to the squared factor, that are rounding errors
_N_POOLED = 15  # features per component and factor
_N_SHARED = 6  # features per component that W and H share
_N_OUT = 6  # outputs per component and factor


@dataclass(frozen=True)
class AnyRankConfig:
    """Sizes of the network; none of them is a rank."""

    kind: str = "any-rank"
    width: int = 32
    messages: int = 8  # channels that components send each other
    n_layers: int = 2

    def __post_init__(self) -> None:
        if self.kind != "any-rank":
            raise ValueError(f"kind is {self.kind!r}; it must be 'any-rank'")
        for name in ("width", "messages", "n_layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")


class Pooled(NamedTuple):
    """Inner products, component by component, of what happened to a factor X, W or H.

    D is the last move of X and P the one before. S, T and U are the last three moves of the solver
    alone, each from the point proposed to it. `zeros` is the share of zeros.
    """

    XX: Float[Tensor, "*b 2 r"]
    XD: Float[Tensor, "*b 2 r"]
    DD: Float[Tensor, "*b 2 r"]
    DP: Float[Tensor, "*b 2 r"]
    PP: Float[Tensor, "*b 2 r"]
    SD: Float[Tensor, "*b 2 r"]
    SS: Float[Tensor, "*b 2 r"]
    ST: Float[Tensor, "*b 2 r"]
    SU: Float[Tensor, "*b 2 r"]
    TT: Float[Tensor, "*b 2 r"]
    TU: Float[Tensor, "*b 2 r"]
    UU: Float[Tensor, "*b 2 r"]
    zeros: Float[Tensor, "*b 2 r"]


class Mixing(NamedTuple):
    """Coefficients of D, P and S that are added to those of plain extrapolation."""

    D: Float[Tensor, "*b 2 r"]
    P: Float[Tensor, "*b 2 r"]
    S: Float[Tensor, "*b 2 r"]


class Progress(NamedTuple):
    """The progress of the iteration: momentum, iterations since a refusal and in all, refusals."""

    beta: Float[Tensor, "*b"]
    age: Float[Tensor, "*b"]
    t: Float[Tensor, "*b"]
    strikes: Float[Tensor, "*b"]


class AnyRankNetwork(nn.Module):
    """Message passing between components; the last layer starts at zero, that is at no mixing.

    One layer is h ← h + φ(Θ [h, h̄, C_W h', C_H h', (C_W ∘ C_H) h']), where h' are the messages, h̄
    their mean and C the cosines between the columns of a factor, off the diagonal, by rows. C_W ∘
    C_H says which components can take over from each other: it is the cosine of their matrices
    w_c h_cᵀ.
    """

    def __init__(self, config: AnyRankConfig):
        super().__init__()
        self.config = config
        d, k = config.width, config.messages
        self.embed = nn.Linear(2 * _N_POOLED + _N_SHARED, d)
        self.send = nn.ModuleList(nn.Linear(d, k, bias=False) for _ in range(config.n_layers))
        self.layers = nn.ModuleList(nn.Linear(d + 4 * k, d) for _ in range(config.n_layers))
        self.extract = nn.Linear(d, 2 * _N_OUT)
        nn.init.zeros_(self.extract.weight)
        nn.init.zeros_(self.extract.bias)

    def forward(self, moves: Pooled, gram: Float[Tensor, "*b 2 r r"], progress: Progress) -> Mixing:
        """The coefficients to add to plain extrapolation, from the moves and [WᵀW, HᵀH]."""
        nodes, edges, step = self.look(moves, gram, progress)
        out = self.listen(nodes, edges).clamp(-4, 4).to(gram.dtype)
        out = out.unflatten(-1, (2, _N_OUT)).movedim(-2, -3)  # (2, r, numbers)
        return _mixing(out, progress.beta[..., None, None].to(gram.dtype), step)

    def look(
        self, moves: Pooled, gram: Float[Tensor, "*b 2 r r"], progress: Progress
    ) -> tuple[Float[Tensor, "*b r k"], Float[Tensor, "*b 3 r r"], Anderson]:
        """The features of the nodes and of the edges between them, and Anderson's steps."""
        own = self.embed.weight.dtype
        with torch.no_grad():
            strength = moves.XX.prod(dim=-2)  # ‖w_c h_cᵀ‖²
            shares = strength / _positive(strength.sum(dim=-1, keepdim=True))
            side = _relative(moves)
            step = _anderson(side, shares[..., None, :])
            features = _features(side, step, shares[..., None, :])
            by_factor = features.movedim(-3, -2).flatten(start_dim=-2)
            nodes = torch.cat([by_factor, _shared(strength, progress)], dim=-1)
            nodes = nodes.nan_to_num().clamp(-10, 10).to(own)  # (r, features)
            C = _cosines(gram)
            edges = _by_rows(torch.cat([C, C.prod(dim=-3, keepdim=True)], dim=-3)).to(own)
        return nodes, edges, step

    def listen(
        self, nodes: Float[Tensor, "*b r k"], edges: Float[Tensor, "*b 3 r r"]
    ) -> Float[Tensor, "*b r n"]:
        """The outputs of each component and factor, after message passing."""
        nodes, edges = (part.to(self.embed.weight.dtype) for part in (nodes, edges))
        h = gate(self.embed(nodes))  # (r, d)
        for send, layer in zip(self.send, self.layers, strict=True):
            message = send(h)  # (r, k)
            mean = message.mean(dim=-2, keepdim=True).expand_as(message)
            heard = (edges @ message[..., None, :, :]).movedim(-3, -2).flatten(start_dim=-2)
            h = h + gate(layer(torch.cat([h, mean, heard], dim=-1)))
        return self.extract(h)


def gate(x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
    """A smooth rectifier without transcendental functions: x·(1 + x/(1 + |x|))/2."""
    return x * (0.5 + 0.5 * x / (1 + x.abs()))


class Anderson(NamedTuple):
    """Steps along D and P that would cancel S, were the solver linear: over all, and by one."""

    D_all: Float[Tensor, "*b 2 r"]
    P_all: Float[Tensor, "*b 2 r"]
    D_one: Float[Tensor, "*b 2 r"]
    P_one: Float[Tensor, "*b 2 r"]


def _mixing(
    out: Float[Tensor, "*b 2 r k"], beta: Float[Tensor, "*b 1 1"], step: Anderson
) -> Mixing:
    more, D, P, S, over_all, by_one = out.unbind(dim=-1)
    return Mixing(
        beta * more + D + over_all * step.D_all + by_one * step.D_one,
        P + over_all * step.P_all + by_one * step.P_one,
        S,
    )


def _anderson(side: Pooled, shares: Float[Tensor, "*b 1 r"]) -> Anderson:
    """Anderson acceleration of depth two, from inner products; large components weigh more."""
    products = torch.stack((side.SS, side.TT, side.UU, side.ST, side.SU, side.TU))
    over_all = (products * shares).sum(dim=-1, keepdim=True)
    both = torch.stack([over_all.expand_as(products), products], dim=1)
    D, P = _depth_two(*both)
    return Anderson(D[0], P[0], D[1], P[1])


def _depth_two(
    SS: Tensor, TT: Tensor, UU: Tensor, ST: Tensor, SU: Tensor, TU: Tensor
) -> tuple[Tensor, Tensor]:
    """−(a + b) and −b, where S − a(S − T) − b(S − U) is smallest, slightly regularized."""
    floor = 1e-6 * (SS + TT + UU) + 1e-30
    first, second = 1.003 * (SS + TT - 2 * ST) + floor, 1.003 * (SS + UU - 2 * SU) + floor
    both = SS - SU - ST + TU
    determinant = (first * second - both * both).clamp(min=1e-30)
    a = ((SS - ST) * second - (SS - SU) * both) / determinant
    b = ((SS - SU) * first - (SS - ST) * both) / determinant
    return _bounded(-(a + b)), _bounded(-b)


def _bounded(x: Tensor) -> Tensor:
    return x.nan_to_num().clamp(-20, 20)


def _relative(side: Pooled) -> Pooled:
    """Inner products relative to the squared norm of the column: free of scale."""
    moved = side.DD + side.PP + side.SS + side.TT + side.UU
    norm = _positive(torch.maximum(_not_tiny(side.XX), 1e-6 * moved))  # a column may vanish
    return Pooled(*(torch.stack(side[:-1]) / norm), zeros=side.zeros)


def _features(
    side: Pooled, step: Anderson, shares: Float[Tensor, "*b 1 r"]
) -> Float[Tensor, "*b 2 r k"]:
    overall = (side.DD * shares).sum(dim=-1, keepdim=True).expand_as(side.DD)
    return torch.stack(
        [
            _cosine(side.XD, torch.ones_like(side.DD), side.DD),
            _cosine(side.SD, side.SS, side.DD),
            _cosine(side.DP, side.DD, side.PP),
            _cosine(side.ST, side.SS, side.TT),
            (side.DD + _FLOOR).log() / 8 + 1,
            (overall + _FLOOR).log() / 8 + 1,
            _log_ratio(side.DD, side.PP),
            _log_ratio(side.SS, side.DD),
            _log_ratio(side.SS, side.TT),
            _log_ratio(side.TT, side.UU),
            side.zeros,
            *(torch.asinh(a) / 2 for a in step),
        ],
        dim=-1,
    )


def _shared(strength: Float[Tensor, "*b r"], progress: Progress) -> Float[Tensor, "*b r k"]:
    """How strong a component is relative to the others, and the progress of the iteration."""
    r = strength.shape[-1]
    strong = torch.maximum(strength, 1e-12 * strength.amax(dim=-1, keepdim=True)).log() / 2
    strong = (strong - strong.mean(dim=-1, keepdim=True)).clamp(-6, 6) / 2
    rank = torch.full_like(progress.beta, math.log(r) / 3)
    age, t = torch.log1p(progress.age) / 2, torch.log1p(progress.t) / 3
    common = torch.stack([age, t, rank, progress.strikes / 3, progress.beta], dim=-1)
    common = common[..., None, :].expand(*strength.shape, common.shape[-1])
    return torch.cat([strong[..., None], common.to(strong.dtype)], dim=-1)


def _cosines(G: Float[Tensor, "*b r r"]) -> Float[Tensor, "*b r r"]:
    """Cosines between columns from their Gram matrix, with zeros on the diagonal."""
    norm = _positive(_not_tiny(G.diagonal(dim1=-2, dim2=-1))).sqrt()
    C = G / norm[..., None, :] / norm[..., :, None]
    return C * (1 - torch.eye(G.shape[-1], dtype=G.dtype, device=G.device))


def _by_rows(C: Float[Tensor, "*b r r"]) -> Float[Tensor, "*b r r"]:
    return (C / (1 + C.abs().sum(dim=-1, keepdim=True))).nan_to_num()


def _cosine(AB: Tensor, AA: Tensor, BB: Tensor) -> Tensor:
    return AB / (AA * BB + _FLOOR**2).sqrt()


def _log_ratio(AA: Tensor, BB: Tensor) -> Tensor:
    return ((AA + _FLOOR).log() - (BB + _FLOOR).log()).clamp(-12, 12) / 4


def _not_tiny(squares: Float[Tensor, "*b r"]) -> Float[Tensor, "*b r"]:
    """Squared norms, bounded below by rounding errors of the largest."""
    return torch.maximum(squares, 1e-16 * squares.amax(dim=-1, keepdim=True))


def _positive(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, torch.ones_like(x))
