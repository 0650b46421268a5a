"""The network that chooses the number of components: a small Transformer over ranks.

It reads curves, a row of features for each rank, and gives each rank a logit. Attention knows only
how far apart two ranks are, so that one network serves every range of ranks.
Shapes: b curves, k ranks, f features, d width, h heads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

_CLIP = 6.0  # standard deviations of a feature


@dataclass(frozen=True)
class RankConfig:
    """Sizes of the network."""

    kind: str = "rank"
    n_features: int = 58
    width: int = 64
    n_heads: int = 4
    n_layers: int = 3
    reach: int = 12  # ranks beyond which distance makes no difference
    dropout: float = 0.1  # in training

    def __post_init__(self) -> None:
        if self.kind != "rank":
            raise ValueError(f"kind is {self.kind!r}; it must be 'rank'")
        if self.n_heads < 1 or self.width % self.n_heads:
            raise ValueError(f"n_heads is {self.n_heads}; it must divide width, {self.width}")


class RankNetwork(nn.Module):
    """Curves to logits, one for each rank.

    The logit of rank k is Σⱼ aⱼ over ranks j ≤ k, plus b_k: aⱼ says whether component j is real, as
    rank k stands for k components that are, and b_k whether to stop here.
    `mean` and `scale` are those of the features in training; `temperature` makes the probabilities
    as frequent as they say; a choice is clear from the probability `threshold` on.
    """

    mean: Tensor
    scale: Tensor
    temperature: Tensor
    threshold: Tensor

    def __init__(self, config: RankConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("mean", torch.zeros(config.n_features))
        self.register_buffer("scale", torch.ones(config.n_features))
        self.register_buffer("temperature", torch.ones(()))
        self.register_buffer("threshold", torch.ones(()))
        self.enter = nn.Conv1d(config.n_features + 1, config.width, 5, padding=2)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.n_layers))
        self.norm = nn.LayerNorm(config.width)
        self.leave = nn.Linear(config.width, 2)
        self.drop = nn.Dropout(config.dropout)

    def forward(
        self, features: Float[Tensor, "b k f"], real: Bool[Tensor, "b k"]
    ) -> Float[Tensor, "b k"]:
        """Logits before calibration, −∞ for ranks that only pad a curve."""
        x = ((features - self.mean) / self.scale).clamp(-_CLIP, _CLIP)
        x = torch.cat([x, torch.ones_like(x[..., :1])], -1) * real[..., None]
        x = self.drop(self.enter(x.mT).mT)
        for layer in self.layers:
            x = layer(x, real)
        real_or_not, stop = self.leave(self.norm(x)).unbind(-1)
        logits = (real_or_not * real).cumsum(-1) + stop
        return logits.masked_fill(~real, -math.inf)

    def probabilities(
        self, features: Float[Tensor, "k f"], asked: Bool[Tensor, "k"]
    ) -> Float[Tensor, "k"]:
        """Calibrated probabilities of the ranks that are asked for, of one curve; others get 0."""
        real = torch.ones_like(asked)[None]
        logits = self(features[None], real)[0] / self.temperature
        return torch.softmax(logits.masked_fill(~asked, -math.inf), 0)


class Layer(nn.Module):
    """Attention between ranks, with a bias for each distance and head; then an MLP."""

    def __init__(self, config: RankConfig) -> None:
        super().__init__()
        d, self.n_heads, self.reach = config.width, config.n_heads, config.reach
        self.before, self.between = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.bias = nn.Parameter(torch.zeros(config.n_heads, 2 * config.reach + 1))
        self.mlp = nn.Sequential(nn.Linear(d, 3 * d), nn.GELU(), nn.Linear(3 * d, d))
        self.drop = nn.Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "b k d"], real: Bool[Tensor, "b k"]
    ) -> Float[Tensor, "b k d"]:
        b, k, d = x.shape
        heads = self.qkv(self.before(x)).view(b, k, 3, self.n_heads, -1)
        q, key, value = heads.permute(2, 0, 3, 1, 4)  # each (b, h, k, d / h)
        at = torch.arange(k, device=x.device)
        apart = (at[:, None] - at).clamp(-self.reach, self.reach) + self.reach
        bias = self.bias[:, apart].masked_fill(~real[:, None, None], -math.inf)  # (b, h, k, k)
        mixed = F.scaled_dot_product_attention(q, key, value, attn_mask=bias)
        x = x + self.drop(self.out(mixed.transpose(1, 2).reshape(b, k, d)))
        return x + self.drop(self.mlp(self.between(x)))
