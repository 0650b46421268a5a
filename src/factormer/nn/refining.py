"""The refining Factormer: the paper's network, with the residual of the current point on its edges.

The N-Factormer replaces the factors by what its last layer says. This variant corrects them after
every layer, and shows each layer their residual, as eq. 10 suggests.
Shapes: m rows, n columns, r rank, d width, *b batch axes.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from factormer.data import Dense, Matrix, n_entries, zero_padding
from factormer.data.factors import Factors
from factormer.nn.factormer import ModelConfig, NFactormer, by_pairs, layers_of


class RefiningFactormer(nn.Module):
    """2N Factormers, each followed by a correction of the factor it updated.

    An edge has two scalars, Vᵢⱼ and the residual Rᵢⱼ = (W Hᵀ − V)ᵢⱼ over its root mean square ε; it
    also brings them times the source's row of W, so that a message can hold Σᵢ αᵢⱼ Rᵢⱼ Wᵢ, the
    gradient by Hⱼ under the weights α. The correction is

        Hⱼ ← ReLU(Hⱼ + ε · x̃ⱼ Θ_extract),

    so it shrinks with the error. Θ_extract starts at zero, and the network at the identity.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.embed = nn.Linear(config.n_points * config.rank, config.width)
        self.layers = layers_of(config, skip=False, n_edges=2, n_carried=config.rank)
        self.extract = nn.Linear(config.width, config.rank)
        nn.init.zeros_(self.extract.weight)
        nn.init.zeros_(self.extract.bias)

    def forward(self, x: Factors, V: Matrix, *, block: int | None = None) -> Factors:
        """Correct the newest of the points side by side in x."""
        r = self.config.rank
        point = Factors(x.W[..., -r:], x.H[..., -r:])
        W, H = self.embed(x.W), self.embed(x.H)  # (m, d), (n, d)
        for update_H, update_W in by_pairs(self.layers, self.config):
            H, point = self._refine(update_H, W, H, point, V, block)
            W, swapped = self._refine(update_W, H, W, point.swap(), V.T, block)
            point = swapped.swap()
        return point

    def _refine(
        self,
        layer: nn.Module,
        src: Float[Tensor, "*b m d"],
        tgt: Float[Tensor, "*b n d"],
        point: Factors,
        V: Matrix,
        block: int | None,
    ) -> tuple[Float[Tensor, "*b n d"], Factors]:
        R, error = unit_residual(point, V)
        tgt = layer(src, tgt, [V.T, R.T], carried=point.W, block=block)
        H = (point.H + error[..., None, None] * self.extract(tgt)).relu()
        return tgt, Factors(point.W, zero_padding(H, V.cols))


def unit_residual(x: Factors, V: Matrix) -> tuple[Dense, Float[Tensor, "*b"]]:
    """The residual W Hᵀ − V (eq. 10) divided by its root mean square, and that."""
    (_, entries), *_ = V.blocks(None)
    R = x.W @ x.H.mT - entries
    tiny = torch.finfo(R.dtype).tiny
    error = (R.square().sum(dim=(-2, -1)) / n_entries(V)).clamp(min=tiny).sqrt()
    return Dense(R / error[..., None, None], V.rows, V.cols), error


Network = NFactormer | RefiningFactormer


def build(config: ModelConfig) -> Network:
    """A network of that config, with fresh weights from the global generator."""
    return NFactormer(config) if config.variant == "paper" else RefiningFactormer(config)
