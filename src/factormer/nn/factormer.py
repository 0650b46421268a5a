"""The Factormer layer (eq. 15) and the N-Factormer (eq. 16).

Shapes: m rows, n columns, r rank, d width, p = n_points·r input width, *b batch axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from jaxtyping import Float
from torch import Tensor, nn

from factormer.data import Matrix, zero_padding
from factormer.data.factors import Factors
from factormer.nn.attention import EdgeAttention

Variant = Literal["paper", "refining"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """One network. The defaults are the paper's learned initialization at rank 10."""

    variant: Variant = "paper"  # NFactormer, or RefiningFactormer
    rank: int = 10
    n_points: int = 1  # points side by side at the input: 1 (alg. 1), 2 for [x, x̂] (alg. 2)
    width: int = 100
    heads: int = 4
    n_pairs: int = 4  # N: pairs of a layer that updates H and one that updates W
    shared: bool = (
        True  # the two layers of a pair have the same weights; False: weights of their own
    )
    ffn_width: int = 400  # not given in the paper
    scale_by_width: bool = False  # softmax scale √d instead of √(d/heads)
    normalize: bool = True  # V is divided by its mean on the way in; the paper has V as it is

    def __post_init__(self) -> None:
        if self.variant not in get_args(Variant):
            options = ", ".join(get_args(Variant))
            raise ValueError(f"variant is {self.variant!r}; choose one of {options}")
        if self.n_points not in (1, 2):
            raise ValueError(f"n_points is {self.n_points}; 1 initializes and 2 accelerates")
        for name in ("rank", "width", "heads", "n_pairs", "ffn_width"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")


class FactormerLayer(nn.Module):
    """u(xⱼ) = LN(xⱼ + FFN(LN(xⱼ + mⱼ))) (eq. 15); the last layer skips its outer norm.

    That norm would erase the scale of the rows, which the factors need.
    """

    def __init__(self, config: ModelConfig, *, last: bool, n_edges: int = 1, n_carried: int = 0):
        super().__init__()
        d = config.width
        self.attention = EdgeAttention(
            d,
            config.heads,
            n_edges=n_edges,
            n_carried=n_carried,
            scale_by_width=config.scale_by_width,
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
        carried: Float[Tensor, "*b m r"] | None = None,
        block: int | None = None,
    ) -> Float[Tensor, "*b n d"]:
        """New features of the targets; `edges` are matrices with targets as rows."""
        message = self.attention(src, tgt, edges, carried=carried, block=block)
        return self.norm_output(tgt + self.feed_forward(self.norm_message(tgt + message)))  # (15)


def layers_of(
    config: ModelConfig, *, n_edges: int = 1, n_carried: int = 0, skip: bool
) -> nn.ModuleList:
    """Return fresh layers: one for each pair, or two where the layers of a pair are not shared.

    With `skip`, those of the last pair have no outer norm.
    """
    of_pairs = [k for k in range(config.n_pairs) for _ in range(1 if config.shared else 2)]
    return nn.ModuleList(
        FactormerLayer(
            config, last=skip and k == config.n_pairs - 1, n_edges=n_edges, n_carried=n_carried
        )
        for k in of_pairs
    )


def by_pairs(
    layers: Iterable[nn.Module], config: ModelConfig
) -> Iterator[tuple[nn.Module, nn.Module]]:
    """Yield the layers of each pair: the one that updates H, and the one that updates W."""
    each = list(layers)
    return (
        zip(each, each, strict=True) if config.shared else zip(each[::2], each[1::2], strict=True)
    )


class NFactormer(nn.Module):
    """Embed both factors, alternate 2N Factormers over the graph, extract, project (eq. 16).

    One Θ_embed and one Θ_extract serve W and H. The 2N layers have weights of their own, or share
    them by pairs (`ModelConfig.shared`). Permutations of rows and columns commute with the network;
    the order of components matters.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.embed = nn.Linear(config.n_points * config.rank, config.width)
        self.layers = layers_of(config, skip=True)
        self.extract = nn.Linear(config.width, config.rank)

    def forward(self, x: Factors, V: Matrix, *, block: int | None = None) -> Factors:
        """Map a point, or points side by side, to a new feasible point.

        `block` bounds the rows or columns whose attention is held at once (None: all of them).
        """
        W, H = self.embed(x.W), self.embed(x.H)  # (m, d), (n, d)
        for update_H, update_W in by_pairs(self.layers, self.config):
            H = update_H(W, H, [V.T], block=block)
            W = update_W(H, W, [V], block=block)
        W, H = self.extract(W).relu(), self.extract(H).relu()  # (16), and the projection
        return Factors(zero_padding(W, V.rows), zero_padding(H, V.cols))
