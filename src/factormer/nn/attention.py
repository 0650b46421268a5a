"""Attention with implicit edge features on the augmented line digraph (eqs. 9–14), folded.

Shapes: m sources i, n targets j, d width, h heads, k = d/h, s edge scalars, *b batch axes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from factormer.data import Matrix


class EdgeAttention(nn.Module):
    """Messages mⱼ = Σᵢ αᵢⱼ (vᵢᴺ + vᵢⱼᴱ) without any tensor of mn·d entries.

    The edge feature ẽᵢⱼ = [xᵢ ⊙ xⱼ, Eᵢⱼ] (9) is linear in xᵢ and in the edge scalars Eᵢⱼ (in the
    paper the one scalar Vᵢⱼ), so the edge key folds into the query, plus one number per target and
    scalar that multiplies Eᵢⱼ; and the edge value folds out of the sum in the same way:

        score  = xᵢ·(Θ_Kᴺ qⱼ + xⱼ ⊙ (Θ_Kᴱ qⱼ)) + Eᵢⱼ·(θ_K qⱼ)
        mⱼ     = zⱼ Θ_Vᴺ + (zⱼ ⊙ xⱼ) Θ_Vᴱ + sⱼ θ_V,   zⱼ = Σᵢ αᵢⱼ xᵢ,   sⱼ = Σᵢ αᵢⱼ Eᵢⱼ

    for each head, where θ are the last rows of Θᴱ. A bias on a key adds the same number to every
    score of a target and vanishes in the softmax, so there is none; those on the values add up to
    one. The slow twin is `lab/tests/reference.py`, message passing that builds every ẽᵢⱼ.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        n_edges: int = 1,
        n_carried: int = 0,
        scale_by_width: bool = False,
    ):
        super().__init__()
        if width % heads:
            raise ValueError(f"width is {width}; it must be a multiple of heads, which is {heads}")
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.node_key = nn.Linear(width, width, bias=False)
        self.node_value = nn.Linear(width, width)
        self.edge_key = nn.Linear(width + n_edges, width, bias=False)
        self.edge_value = nn.Linear(width + n_edges * (1 + n_carried), width, bias=False)
        self.temperature = math.sqrt(width if scale_by_width else width // heads)

    def forward(
        self,
        src: Float[Tensor, "*b m d"],
        tgt: Float[Tensor, "*b n d"],
        edges: Sequence[Matrix],
        *,
        carried: Float[Tensor, "*b m r"] | None = None,
        block: int | None = None,
    ) -> Float[Tensor, "*b n d"]:
        """Messages to the targets; each matrix of `edges` has targets as rows, sources as columns.

        Edges also bring Eᵢⱼ·cᵢ where sources carry vectors cᵢ. Targets are taken `block` at a
        time, which bounds memory where no gradient is wanted.
        """
        blocks = zip(*(E.blocks(block) for E in edges), strict=True)
        messages = [
            self._messages(
                src, tgt[..., same[0][0], :], [E for _, E in same], carried, edges[0].cols
            )
            for same in blocks
        ]
        return torch.cat(messages, dim=-2) if len(messages) > 1 else messages[0]

    def _messages(
        self,
        src: Tensor,
        tgt: Tensor,
        edges: Sequence[Tensor],
        carried: Tensor | None,
        real: Tensor | None,
    ) -> Float[Tensor, "*b n d"]:
        d, h = tgt.shape[-1], self.heads
        x_j = tgt.unsqueeze(-3)  # (1, n, d)
        q = (self.query(tgt) / self.temperature).unflatten(-1, (h, -1))  # (n, h, k)
        folded = torch.einsum("...nhk,hke->...hne", q, self._by_head(self.node_key, self.edge_key))
        node, edge, scalars = folded.split([d, d, len(edges)], dim=-1)  # (h, n, d), …, (h, n, s)
        logits = _per_source(node + x_j * edge, src.mT)  # (h, n, m)
        for scalar, E in zip(scalars.unbind(-1), edges, strict=True):
            logits = torch.addcmul(logits, scalar[..., None], E.unsqueeze(-3))
        if real is not None:
            logits = logits.masked_fill(~real[..., None, None, :], -torch.inf)
        alpha = torch.softmax(logits, dim=-1)  # (13), over sources i

        z = _per_source(alpha, src)  # (h, n, d)
        ones = torch.ones_like(src[..., :1])
        sent = ones if carried is None else torch.cat([ones, carried], dim=-1)  # (m, 1 + r)
        s = [_per_source(alpha * E.unsqueeze(-3), sent) for E in edges]  # (h, n, 1 + r) each
        unfolded = torch.cat([z, z * x_j, *s], dim=-1)  # (h, n, 2d + s)
        values = self._by_head(self.node_value, self.edge_value)
        message = torch.einsum("...hne,hke->...nhk", unfolded, values)  # (14)
        return message.flatten(-2) + self.node_value.bias

    def _by_head(self, node: nn.Linear, edge: nn.Linear) -> Float[Tensor, "h k e"]:
        """Weights of xᵢ, of xᵢ ⊙ xⱼ and of the scalars side by side, e = 2d + s."""
        return torch.cat([node.weight, edge.weight], dim=-1).unflatten(0, (self.heads, -1))


def _per_source(
    a: Float[Tensor, "*b h n p"], B: Float[Tensor, "*b p q"]
) -> Float[Tensor, "*b h n q"]:
    """A product with what all heads share, as one matrix product per batch member."""
    return (a.flatten(-3, -2) @ B).unflatten(-2, a.shape[-3:-1])
