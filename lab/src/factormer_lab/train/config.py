"""One training run as a frozen value, and its strict TOML reader."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from factormer.nn.factormer import ModelConfig

Objective = Literal["squared", "log"]
Schedule = Literal["restarts", "cosine"]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One training run: the same config gives the same weights.

    The defaults are the paper's recipe for the learned initialization (app. A); what the paper
    leaves open says so.
    """

    name: str
    model: ModelConfig = field(default_factory=ModelConfig)
    warm_start: str = ""  # name or .safetensors file of the network to begin from
    alive: bool = False  # open: every component begins at about 1/√r, so that none is dead

    copies: int = 1  # how many times the 15 000 matrices of the paper's table, all different
    up_to_100: bool = False  # one more class, 2 000 matrices of 30 to 100 rows and columns
    sigma: float = 0.01  # noise (sec. 7.1)
    sigma_max: float = 0.0  # if above sigma: the noise of each matrix, log-uniform between them
    n_steps: int = 5  # T of eq. 17; open for the initialization model
    n_accel: int = 5  # accelerated iterations among them (alg. 2)
    curriculum_epochs: int = 0  # epochs until one more of those is added; 0: all at once
    curriculum_share: float = 0.0  # the same as a share of the run, which may be timed
    objective: Objective = "squared"  # eq. 17 on the loss, or on log RMSE
    gamma: float = 0.2  # discount of earlier iterates (eq. 17)

    epochs: int = 15
    seconds: float = 0.0  # if above 0: the run and its schedule last so long, and not `epochs`
    batch: int = 1
    large_batch: int = 0  # matrices of a batch from the larger classes; 0: as many as of the small
    small_visits: int = 1  # how often an epoch visits the small matrices; the others once
    lr: float = 1e-4  # 1e-5 for the acceleration model
    lr_decay: float = 0.9  # of the base rate, an epoch
    schedule: Schedule = "restarts"  # cosine to zero in each epoch, or once over the run
    warmup: int = 0  # optimiser steps of linear warm-up
    weight_decay: float = 0.01  # open: AdamW's default
    beta2: float = 0.999  # open: AdamW's default
    clip: float = 0.0  # norm of the gradient; 0: not clipped, as in the paper
    ema: float = 0.0  # decay of the averaged weights that are kept; 0: the last weights
    tf32: bool = False  # products with ten bits of mantissa, on GPUs that have them
    seed: int = 0

    def __post_init__(self) -> None:
        for name, allowed in (("objective", Objective), ("schedule", Schedule)):
            if (value := getattr(self, name)) not in get_args(allowed):
                options = ", ".join(get_args(allowed))
                raise ValueError(f"{name} is {value!r}; choose one of {options}")
        for name in ("copies", "n_steps", "n_accel", "epochs", "batch", "small_visits"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("seconds", "large_batch", "curriculum_share"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0")
        if self.seconds and (
            self.schedule != "cosine" or self.lr_decay != 1 or self.curriculum_epochs
        ):
            raise ValueError(
                f"seconds is {self.seconds}, for which there is one cosine over the run: add "
                "schedule = 'cosine' and lr_decay = 1.0, and curriculum_share in place of "
                "curriculum_epochs"
            )
        if self.alive and (self.model.variant != "paper" or self.warm_start):
            raise ValueError(
                "alive is true, which is for fresh networks with the paper's layers; leave it out"
            )

    @classmethod
    def load(cls, path: Path) -> TrainConfig:
        """Read a config; an unknown key is an error, so that a typo cannot pass for a default."""
        options, model = read_options(path, cls, ModelConfig)
        return cls(model=ModelConfig(**model), **options)

    @property
    def noise(self) -> float | tuple[float, float]:
        """The noise of the training matrices, as `synthetic.sample` takes it."""
        return (self.sigma, self.sigma_max) if self.sigma_max > self.sigma else self.sigma

    def n_accel_at(self, epoch: int, progress: float = 0.0) -> int:
        """The curriculum: start from one accelerated iteration, add one at a time.

        `progress` through the run is from 0 to 1.
        """
        if self.curriculum_share:
            return min(self.n_accel, 1 + int(progress / self.curriculum_share))
        if not self.curriculum_epochs:
            return self.n_accel
        return min(self.n_accel, 1 + epoch // self.curriculum_epochs)


def read_table(path: Path) -> dict[str, Any]:
    """The options in a TOML file, as they stand there."""
    try:
        return tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from error


def read_options(path: Path, cls: type, model_cls: type) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of a run and of its network, every key known and every value of its type."""
    options = read_table(path)
    model = options.pop("model", {})
    if not isinstance(model, dict):
        raise ValueError(f"{path}: model is {model!r}; it must be a table, [model]")
    _check_keys(path, model, model_cls, table="[model] ")
    _check_keys(path, options, cls)
    if not options.get("name"):
        raise ValueError(f"{path}: no name; add name = 'my-model', the name of the weights")
    return options, model


def _check_keys(path: Path, options: dict[str, Any], cls: type, *, table: str = "") -> None:
    known = {f.name for f in fields(cls)} - {"model"}
    if unknown := options.keys() - known:
        raise ValueError(f"{path}: unknown {table}{sorted(unknown)}; options are {sorted(known)}")
    kinds = {f.name: str(f.type) for f in fields(cls)}
    allowed = {"int": int, "float": (int, float), "bool": bool, "tuple[str, ...]": list}
    for key, value in options.items():
        kind = allowed.get(kinds[key], str)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"{path}: {table}{key} is {value!r}; it must be of type {kinds[key]}")
