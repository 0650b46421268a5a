"""Weights that learn: drawn by a seed, updated by gradients, averaged over the updates."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

M = TypeVar("M", bound=torch.nn.Module)


def untrained(make: Callable[[], M], seed: int) -> M:
    """A network that has learned nothing yet, its weights drawn by the seed."""
    with torch.random.fork_rng(devices=[]):  # layers draw from the global generator
        torch.manual_seed(seed)
        return make()


def warm_cosine(lr: float, step: int, total: int, *, warmup: int, least: float) -> float:
    """The rate of an update: linear warm-up, then a cosine down to a share of the rate."""
    warm = min(1.0, (step + 1) / warmup) if warmup else 1.0
    return warm * lr * (least + (1 - least) * (1 + math.cos(math.pi * step / total)) / 2)


class Averaged(Generic[M]):
    """A network, its average and its optimiser, AdamW: all that changes in training."""

    def __init__(
        self,
        model: M,
        *,
        weight_decay: float,
        clip: float,
        ema: float,
        betas: tuple[float, float] = (0.9, 0.98),
    ):
        self.model, self.clip, self.ema = model, clip, ema
        self.average = copy.deepcopy(model).requires_grad_(False).eval()
        self.weights = list(model.parameters())
        self.optimizer = torch.optim.AdamW(self.weights, betas=betas, weight_decay=weight_decay)
        self.n_updates = 0

    def learn(self, loss: Tensor, lr: float) -> None:
        """One update that lowers a loss."""
        self.update(torch.autograd.grad(loss, self.weights), lr)

    @torch.no_grad()
    def update(self, gradients: Sequence[Tensor], lr: float) -> None:
        """Clip, step, average; a gradient that is not finite counts as zero."""
        norm = torch.nn.utils.get_total_norm(gradients)
        factor = (self.clip / norm.clamp(min=1e-12)).clamp(max=1)
        factor = torch.where(norm.isfinite(), factor, 0)
        for weight, gradient in zip(self.weights, gradients, strict=True):
            weight.grad = gradient.nan_to_num(0, 0, 0) * factor
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        self.n_updates += 1
        decay = min(self.ema, self.n_updates / (self.n_updates + 10))
        for average, weight in zip(self.average.parameters(), self.weights, strict=True):
            average.lerp_(weight, 1 - decay)

    def state(self) -> dict[str, Any]:
        """All that changes, as plain tensors and numbers."""
        return {
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "n_updates": self.n_updates,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to a state."""
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.n_updates = state["n_updates"]
