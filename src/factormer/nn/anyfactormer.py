"""A Factormer for every rank: rows, columns and components as tokens, V seen through a sketch.

A sketch V ≈ U Zᵀ leaves one thing open: V ≈ (U R)(Z R)ᵀ for every rotation R, with U and Z
balanced. A layer turns the rows of U and Z, whose channels are the components, toward nonnegative
ones. Components attend to each other through the rows and columns: how far component c is negative
where component c' is not small is a sum over all of them, one number a pair, and the product V is
not touched. So a layer costs O((m + n) r²), and nothing in it is tied to a rank, a size, a scale of
V or an order of rows, columns or components. Shapes: r rank, d width, *b batch axes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from factormer.data.factors import Factors
from factormer.nn.anyrank import gate

_N_FEATURES = 9
_N_OUT = 3
_RIDGE = 1e-3  # of the mean of the Gram matrix's diagonal: directions below it move less
_REACH = 9.0  # how far beyond zero negative entries are mirrored before anything is learned


@dataclass(frozen=True)
class AnyFactormerConfig:
    """Sizes of the network; none of them is a rank."""

    kind: str = "any-factormer"
    width: int = 16
    n_layers: int = 10  # all with the same weights, which know the number of the layer

    def __post_init__(self) -> None:
        if self.kind != "any-factormer":
            raise ValueError(f"kind is {self.kind!r}; it must be 'any-factormer'")
        for name in ("width", "n_layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")


class Turning(NamedTuple):
    """Rows of both factors below each other, turned so far by R, and what layers carry on."""

    Y: Float[Tensor, "*b k r"]
    R: Float[Tensor, "*b r r"]
    level: Float[Tensor, "*b r"]  # entries below it count as negative
    before: Float[Tensor, "*b r r"]  # the last step


class AnyFactormer(nn.Module):
    """Layers that rotate balanced factors toward nonnegative ones.

    With Y the rows of both, and N the parts of entries that are below their component's level, the
    message between components c' and c is E = Yᵀ N: what lifting the negative entries of c would
    take from c'. Each component's token says how far to go along its own. The step is the rotation
    by those of E − Eᵀ, over the sum of the strengths of the two directions that it turns: the
    curvature, exactly so in the coordinates in which YᵀY is diagonal. Angles are bounded. The last
    layer of the tokens starts at zero: plain projections that overshoot.
    """

    def __init__(self, config: AnyFactormerConfig):
        super().__init__()
        self.config = config
        d = config.width
        self.embed = nn.Linear(_N_FEATURES, d)
        self.hear = nn.Linear(3 * d, d)
        self.extract = nn.Linear(d, _N_OUT)
        nn.init.zeros_(self.extract.weight)
        nn.init.zeros_(self.extract.bias)

    def forward(
        self, x: Factors, R: Float[Tensor, "*b r r"], *, n_layers: int | None = None
    ) -> Factors:
        """Factors with the same product, nearly nonnegative.

        x are balanced ones with orthogonal columns, as [U√S, Z√S], and R the rotation to begin at.
        """
        *_, last = self.layers(x, R, n_layers or self.config.n_layers)
        return last

    def layers(self, x: Factors, R: Float[Tensor, "*b r r"], n_layers: int) -> list[Factors]:
        """The factors after each layer."""
        X, sizes, found = torch.cat(list(x), dim=-2), [F.shape[-2] for F in x], []
        strength = X.square().sum(dim=-2)
        at = Turning(X @ R, R, torch.zeros_like(strength), torch.zeros_like(R))
        for k in range(n_layers):
            at = self.layer(at, strength, k)
            found.append(Factors(*at.Y.split(sizes, dim=-2)))
        return found

    def layer(self, at: Turning, strength: Float[Tensor, "*b r"], k: int) -> Turning:
        """One rotation of all rows; `strength` are the squared columns before any."""
        r = at.Y.shape[-1]
        N = (at.Y - at.level[..., None, :]).clamp(max=0)
        E = at.Y.mT @ N
        mean = strength.mean(dim=-1)[..., None, None]
        pairs = strength[..., None] + strength[..., None, :] + _RIDGE * mean
        weight = 1 / torch.where(pairs > 0, pairs, 1.0)
        reach, carried, level = self.listen(*look(at.Y, N, E, k))
        K = E * reach[..., None, :]
        turn = at.R.mT @ ((at.R @ (K.mT - K) @ at.R.mT) * weight) @ at.R
        pair = (carried[..., None, :] + carried[..., :, None]) / 2
        step = turn + pair * at.before
        step = step / (1 + step.abs())
        one = torch.eye(r, dtype=E.dtype, device=E.device)
        Q = torch.linalg.solve(one - step / 2, one + step / 2)
        size = at.Y.square().mean(dim=-2).sqrt()
        return Turning(at.Y @ Q, at.R @ Q, level * size, step)

    def listen(
        self, tokens: Float[Tensor, "*b r k"], edges: Float[Tensor, "*b r r"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """How far each component goes, how much of its last step it repeats, and its next level."""
        h = gate(self.embed(tokens.to(self.embed.weight.dtype)))  # (r, d)
        mean = h.mean(dim=-2, keepdim=True).expand_as(h)
        heard = torch.cat([h, mean, edges.to(h.dtype) @ h], dim=-1)
        out = self.extract(h + gate(self.hear(heard))).to(tokens.dtype)
        reach, carried, level = out.unbind(dim=-1)
        return _REACH * reach.clamp(-2, 2).exp(), carried.clamp(-1, 1), level.clamp(-1, 1) / 2


def look(
    Y: Float[Tensor, "*b k r"], N: Float[Tensor, "*b k r"], E: Float[Tensor, "*b r r"], k: int
) -> tuple[Float[Tensor, "*b r f"], Float[Tensor, "*b r r"]]:
    """Features of the tokens, none of which has a unit, and how much each hears of the others."""
    with torch.no_grad():
        r = Y.shape[-1]
        squares = Y.square().mean(dim=-2)
        overall = squares.mean(dim=-1, keepdim=True)
        overall = torch.where(overall > 0, overall, 1.0)
        squares = torch.maximum(squares, 1e-12 * overall)
        share = (N.square().mean(dim=-2) / squares).clamp(max=4).sqrt()
        lean = Y.mean(dim=-2) / squares.sqrt()
        large = (squares / overall).log() / 4
        turned = (E - E.mT).abs()
        total = turned.sum(dim=-1, keepdim=True)
        pull = (total[..., 0] / (Y.shape[-2] * overall)).clamp(max=4)
        means = [f.mean(dim=-1, keepdim=True).expand_as(f) for f in (share, pull)]
        common = (math.log1p(k) / 2, float(k == 0), math.log(r) / 3)
        shared = [torch.full_like(share, value) for value in common]
        tokens = torch.stack([share, lean, large, pull, *means, *shared], dim=-1)
        edges = turned / (total + 1e-6 * overall[..., None])
    return tokens, edges


def spread(x: Factors, chance: Float[Tensor, "*b r r"]) -> Float[Tensor, "*b r r"]:
    """A rotation after which every component has the same mean; otherwise the given one.

    All components then share the one direction that is nonnegative from the start.
    """
    mean = ((x.W.sum(dim=-2) + x.H.sum(dim=-2))[..., None, :] @ chance)[..., 0, :]
    norm = mean.norm(dim=-1, keepdim=True)
    even = torch.full_like(mean, 1 / math.sqrt(mean.shape[-1]))
    mean = torch.where(norm > 0, mean / torch.where(norm > 0, norm, 1.0), even)
    v = mean - even  # a reflection that maps one onto the other
    size = v.square().sum(dim=-1, keepdim=True)[..., None]
    by = torch.where(size > 1e-12, 2 / torch.where(size > 1e-12, size, 1.0), 0.0)
    return chance - by * (chance @ v[..., None]) * v[..., None, :]
