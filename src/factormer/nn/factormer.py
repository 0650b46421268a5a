"""The Factormer layer (eq. 15) and the N-Factormer (eq. 16).

Shapes: m rows, n columns, r rank, d width, p = n_points·r input width, *b batch axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from factormer.factors import Factors
from factormer.matrix import Dense, Matrix
from factormer.nn.attention import EdgeAttention

Edges = Literal["value", "value+residual"]
Output = Literal["replace", "correct"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """One network. The defaults are the paper's learned initialization at rank 10."""

    rank: int = 10
    n_points: int = 1  # points side by side at the input: 1 (alg. 1), 2 for [x, x̂] (alg. 2)
    width: int = 100
    heads: int = 4
    n_pairs: int = 4  # N: weight sets, each applied once in either direction
    ffn_width: int = 400  # not given in the paper
    scale_by_width: bool = False  # softmax scale √d instead of √(d/heads)
    edges: Edges = "value"  # edge scalars: Vᵢⱼ, or Vᵢⱼ and the residual of the input point
    output: Output = "replace"  # ReLU(Δ) as in the paper, or ReLU(x + Δ)

    def __post_init__(self) -> None:
        for name, allowed in (("edges", get_args(Edges)), ("output", get_args(Output))):
            if getattr(self, name) not in allowed:
                value = getattr(self, name)
                raise ValueError(f"{name} is {value!r}; choose one of {', '.join(allowed)}")


class FactormerLayer(nn.Module):
    """u(xⱼ) = LN(xⱼ + FFN(LN(xⱼ + mⱼ))) (eq. 15); the last layer skips its outer norm.

    That norm would erase the scale of the rows, which the factors need.
    """

    def __init__(self, config: ModelConfig, *, last: bool):
        super().__init__()
        d, n_scalars = config.width, config.edges.count("+") + 1
        self.attention = EdgeAttention(
            d, config.heads, n_scalars=n_scalars, scale_by_width=config.scale_by_width
        )
        self.norm_message = nn.LayerNorm(d)
        self.feed_forward = nn.Sequential(
            nn.Linear(d, config.ffn_width), nn.ReLU(), nn.Linear(config.ffn_width, d)
        )
        self.norm_output = nn.Identity() if last else nn.LayerNorm(d)

    def forward(
        self,
        src: Float[Tensor, "*b m d"],
        tgt: Float[Tensor, "*b n d"],
        edges: Sequence[Matrix],
        *,
        block: int | None = None,
    ) -> Float[Tensor, "*b n d"]:
        """New features of the targets; `edges` are matrices with targets as rows."""
        message = self.attention(src, tgt, edges, block=block)
        return self.norm_output(tgt + self.feed_forward(self.norm_message(tgt + message)))  # (15)


class NFactormer(nn.Module):
    """Embed both factors, alternate 2N Factormers over the graph, extract, project (eq. 16).

    One Θ_embed and one Θ_extract serve W and H, one layer serves both directions of a pair.
    Row and column permutations commute with it; the order of components matters.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.embed = nn.Linear(config.n_points * config.rank, config.width)
        self.layers = nn.ModuleList(
            FactormerLayer(config, last=k == config.n_pairs - 1) for k in range(config.n_pairs)
        )
        self.extract = nn.Linear(config.width, config.rank)
        if config.output == "correct":  # start as the identity
            nn.init.zeros_(self.extract.weight)
            nn.init.zeros_(self.extract.bias)

    def forward(self, x: Factors, V: Matrix, *, block: int | None = None) -> Factors:
        """Map a point, or points side by side, to a new feasible point.

        `block` bounds the rows or columns whose attention is held at once (None: all of them).
        """
        r = self.config.rank
        newest = Factors(x.W[..., -r:], x.H[..., -r:])
        edges = [V] if self.config.edges == "value" else [V, residual(newest, V)]
        edges_T = [E.T for E in edges]
        W, H = self.embed(x.W), self.embed(x.H)  # (m, d), (n, d)
        for layer in self.layers:
            H = layer(W, H, edges_T, block=block)
            W = layer(H, W, edges, block=block)
        W, H = self.extract(W), self.extract(H)
        if self.config.output == "correct":
            W, H = newest.W + W, newest.H + H
        return Factors(_zero_padding(W.relu(), V.rows), _zero_padding(H.relu(), V.cols))


def residual(x: Factors, V: Matrix) -> Dense:
    """The residual W Hᵀ − V of eq. 10 as a matrix, zero on padding."""
    (_, entries), *_ = V.blocks(None)
    return Dense(x.W @ x.H.mT - entries, V.rows, V.cols)


def _zero_padding(F: Float[Tensor, "*b m r"], real: Tensor | None) -> Float[Tensor, "*b m r"]:
    return F if real is None else F * real[..., None]
