"""One training run of the any-rank network as a frozen value."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from factormer.nn.anyrank import AnyRankConfig
from factormer_lab.train.config import read_options

BASES = ("admm", "hals", "newton", "mu")  # those of `tasks.TASKS`


@dataclass(frozen=True, kw_only=True)
class AnyRankTraining:
    """One training run: the same config gives the same weights, on one kind of device.

    A step is one update of the weights, on `lanes` batches of equal shape each; a batch is followed
    for up to `horizon` updates of `n_iter` iterations each.
    """

    name: str
    kind: str = "any-rank"
    model: AnyRankConfig = field(default_factory=AnyRankConfig)
    warm_start: str = ""  # name or .safetensors file of the network to begin from
    data: tuple[str, ...] = ()  # .npy or .npz files to draw problems from; none: synthetic ones
    base: str = "admm"  # what is accelerated, one of BASES; several are joined by +

    n_buckets: int = 36  # shapes (m, n, r)
    per_kind: int = 64  # matrices of each kind in a bucket
    min_rank: int = 2
    max_rank: int = 64
    max_size: int = 200  # of m and n, up to which they are log-uniform; more for large ranks
    n_reference: int = 220  # iterations of the classical engine that the error is measured by
    n_before: int = 0  # iterations of the classical engine in two of three buckets that come first
    n_inner: int = 10  # sweeps of ADMM in a half-step
    n_inner_some: int = 5  # the same in every third bucket

    n_steps: int = 20000
    lanes: int = 4
    batch: int = 128
    n_iter: int = 16
    truncate: int = 4  # iterations that a gradient goes back through
    horizon: int = 6
    refusal: float = 1.5  # weight of refused proposals in the loss
    none: float = 1e-3  # excess over the reference error, relative to it, that hardly counts

    lr: float = 1e-3
    warmup: int = 100
    weight_decay: float = 1e-4
    clip: float = 0.5
    ema: float = 0.995
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind != "any-rank":
            raise ValueError(f"kind is {self.kind!r}; it must be 'any-rank'")
        if unknown := [base for base in self.bases if base not in BASES]:
            known = ", ".join(BASES)
            raise ValueError(f"base is {unknown[0]!r}; choose one of {known}, or several with +")
        for name in ("n_buckets", "per_kind", "n_steps", "lanes", "batch", "n_iter", "horizon"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not 2 <= self.min_rank <= self.max_rank:
            raise ValueError(
                f"min_rank is {self.min_rank}; it must be from 2 to max_rank, {self.max_rank}"
            )
        if self.n_before < 0:
            raise ValueError(f"n_before is {self.n_before}; it must be at least 0")
        if self.truncate < 1 or self.n_iter % self.truncate:
            raise ValueError(f"truncate is {self.truncate}; it must divide n_iter, {self.n_iter}")
        if self.n_reference < self.horizon * self.n_iter:
            followed = self.horizon * self.n_iter
            raise ValueError(f"n_reference is {self.n_reference}; it must be at least {followed}")
        if self.n_buckets % self.lanes:
            raise ValueError(f"n_buckets is {self.n_buckets}; lanes, {self.lanes}, must divide it")

    @property
    def bases(self) -> tuple[str, ...]:
        """Return the solvers that are accelerated, each in some of the buckets."""
        return tuple(self.base.split("+"))

    @classmethod
    def load(cls, path: Path) -> AnyRankTraining:
        """Read a config; an unknown key is an error, so that a typo cannot pass for a default."""
        options, model = read_options(path, cls, AnyRankConfig)
        options["data"] = tuple(options.get("data", ()))
        return cls(model=AnyRankConfig(**model), **options)
