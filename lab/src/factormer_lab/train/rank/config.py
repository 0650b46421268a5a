"""One training run of the network that chooses the rank, as a frozen value."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from factormer.nn.rank import RankConfig
from factormer_lab.train.config import read_options


@dataclass(frozen=True, kw_only=True)
class RankTraining:
    """One training run: the same config gives the same weights, on one kind of processor.

    Curves are made first, in shards of 100 problems that are kept in the folder of the run; those
    that are held out serve to calibrate probabilities, and for the figures of the card.
    """

    name: str
    kind: str = "rank"
    model: RankConfig = field(default_factory=RankConfig)
    warm_start: str = ""  # name or .safetensors file of the network to begin from

    n_shards: int = 60
    n_high: int = 0  # further shards, of problems of high rank alone
    n_held_out: int = 6  # shards for calibration and figures
    wide: int = 12  # problems of high rank in a shard of 100

    n_steps: int = 4000
    batch: int = 128
    lr: float = 2e-3
    warmup: int = 100
    weight_decay: float = 0.02
    dropped: float = 0.15  # share of the curves that lose some or all of their fits
    smoothing: float = 0.01  # of labels, to ranks beside the planted one
    ema: float = 0.995
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind != "rank":
            raise ValueError(f"kind is {self.kind!r}; it must be 'rank'")
        for name in ("n_shards", "n_held_out", "n_steps", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not 0 <= self.wide <= 100:
            raise ValueError(f"wide is {self.wide}; it must be from 0 to 100, a share of a shard")

    @classmethod
    def load(cls, path: Path) -> RankTraining:
        """Read a config; an unknown key is an error, so that a typo cannot pass for a default."""
        options, model = read_options(path, cls, RankConfig)
        return cls(model=RankConfig(**model), **options)
