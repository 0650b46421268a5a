"""One training run of the Factormer for every rank as a frozen value."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from factormer.nn.anyfactormer import AnyFactormerConfig
from factormer_lab.train.config import read_options


@dataclass(frozen=True, kw_only=True)
class AnyFactormerTraining:
    """One training run: the same config gives the same weights, on one kind of device.

    A step is one update of the weights, on a batch of equal shape. What is learned is where one
    iteration of HALS leads from the factors after `marks` layers: no label is needed.
    """

    name: str
    kind: str = "any-factormer"
    model: AnyFactormerConfig = field(default_factory=AnyFactormerConfig)
    warm_start: str = ""  # name or .safetensors file of the network to begin from

    n_buckets: int = 48  # shapes (m, n, r); every other one has products with relative noise alone
    per_kind: int = 32  # matrices of each kind in a bucket
    max_rank: int = 32
    max_size: int = 128  # of m and n, up to which they are log-uniform; more for large ranks
    n_reference: int = 100  # iterations of the classical engine that the error is measured by

    n_steps: int = 6000
    batch: int = 128
    n_marks: int = 4  # layers after which the factors are judged: the last, and every second before

    lr: float = 2e-3
    warmup: int = 100
    weight_decay: float = 1e-4
    clip: float = 0.5
    ema: float = 0.995
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind != "any-factormer":
            raise ValueError(f"kind is {self.kind!r}; it must be 'any-factormer'")
        for name in ("n_buckets", "per_kind", "n_reference", "n_steps", "batch", "n_marks"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.max_rank < 2:
            raise ValueError(f"max_rank is {self.max_rank}; it must be at least 2")

    @property
    def marks(self) -> tuple[int, ...]:
        """The layers after which the factors are judged, counted from 1."""
        last = self.model.n_layers
        return tuple(k for k in range(last, 0, -2))[: self.n_marks][::-1]

    @classmethod
    def load(cls, path: Path) -> AnyFactormerTraining:
        """Read a config; an unknown key is an error, so that a typo cannot pass for a default."""
        options, model = read_options(path, cls, AnyFactormerConfig)
        return cls(model=AnyFactormerConfig(**model), **options)
