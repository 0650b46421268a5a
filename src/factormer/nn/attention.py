"""Attention with implicit edge features on the augmented line digraph (eqs. 9–14), folded.

Shapes: m sources i, n targets j, d width, h heads, k = d/h, s edge scalars, *b batch axes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from factormer.matrix import Matrix


class EdgeAttention(nn.Module):
    """Messages mⱼ = Σᵢ αᵢⱼ (vᵢᴺ + vᵢⱼᴱ) without any tensor of mn·d entries.

    The edge feature ẽᵢⱼ = [xᵢ ⊙ xⱼ, Eᵢⱼ] (9) is linear in xᵢ and in the edge scalars Eᵢⱼ (in the
    paper the one scalar Vᵢⱼ), so the edge key folds into the query, plus one number per target and
    scalar that multiplies Eᵢⱼ; and the edge value folds out of the sum in the same way:

        score  = xᵢ·(Θ_Kᴺ qⱼ + xⱼ ⊙ (Θ_Kᴱ qⱼ)) + Eᵢⱼ·(θ_K qⱼ)
        mⱼ     = zⱼ Θ_Vᴺ + (zⱼ ⊙ xⱼ) Θ_Vᴱ + sⱼ θ_V,   zⱼ = Σᵢ αᵢⱼ xᵢ,   sⱼ = Σᵢ αᵢⱼ Eᵢⱼ

    for each head, where θ are the last rows of Θᴱ. A bias on a key adds the same number to every
    score of a target and vanishes in the softmax, so there is none; those on the values add up to
    one. The slow twin is `tests/reference.py`, message passing that builds every ẽᵢⱼ.
    """

    def __init__(self, width: int, heads: int, *, n_scalars: int = 1, scale_by_width: bool = False):
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of heads {heads}; choose one that is")
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.node_key = nn.Linear(width, width, bias=False)
        self.node_value = nn.Linear(width, width)
        self.edge_key = nn.Linear(width + n_scalars, width, bias=False)
        self.edge_value = nn.Linear(width + n_scalars, width, bias=False)
        self.temperature = math.sqrt(width if scale_by_width else width // heads)

    def forward(
        self,
        src: Float[Tensor, "*b m d"],
        tgt: Float[Tensor, "*b n d"],
        edges: Sequence[Matrix],
        *,
        block: int | None = None,
    ) -> Float[Tensor, "*b n d"]:
        """Messages to the targets; each matrix of `edges` has targets as rows, sources as columns.

        Targets are taken `block` at a time, which bounds memory where no gradient is wanted.
        """
        blocks = zip(*(E.blocks(block) for E in edges), strict=True)
        messages = [
            self._messages(src, tgt[..., rows[0][0], :], [E for _, E in rows], edges[0].cols)
            for rows in blocks
        ]
        return torch.cat(messages, dim=-2) if len(messages) > 1 else messages[0]

    def _messages(
        self, src: Tensor, tgt: Tensor, edges: Sequence[Tensor], real: Tensor | None
    ) -> Float[Tensor, "*b n d"]:
        d, h = tgt.shape[-1], self.heads
        q = _split(self.query(tgt) / self.temperature, h)  # (h, n, k)
        Kn = self.node_key.weight.view(h, -1, d)  # (h, k, d)
        Ke = self.edge_key.weight.view(h, d // h, -1)  # (h, k, d + s)
        x_j = tgt.unsqueeze(-3)  # (1, n, d)
        x_i = src.unsqueeze(-3)  # (1, m, d)

        folded = q @ Kn + x_j * (q @ Ke[..., :d])  # (h, n, d)
        scalar = q @ Ke[..., d:]  # (h, n, s)
        logits = folded @ x_i.mT  # (h, n, m)
        for e, E in enumerate(edges):
            logits = logits + scalar[..., e : e + 1] * E.unsqueeze(-3)
        if real is not None:
            logits = logits.masked_fill(~real[..., None, None, :], -torch.inf)
        alpha = torch.softmax(logits, dim=-1)  # (13), over sources i

        z = alpha @ x_i  # (h, n, d)
        s = torch.stack([(alpha * E.unsqueeze(-3)).sum(dim=-1) for E in edges], dim=-1)  # (h, n, s)
        Vn = self.node_value.weight.view(h, -1, d).mT  # (h, d, k)
        Ve = self.edge_value.weight.view(h, d // h, -1).mT  # (h, d + s, k)
        message = z @ Vn + (z * x_j) @ Ve[:, :d] + s @ Ve[:, d:]  # (14), (h, n, k)
        return message.transpose(-3, -2).flatten(-2) + self.node_value.bias


def _split(x: Float[Tensor, "*b n d"], heads: int) -> Float[Tensor, "*b h n k"]:
    return x.unflatten(-1, (heads, -1)).transpose(-3, -2)
