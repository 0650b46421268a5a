"""One optimiser step: gradient, clipping, AdamW, averaged weights; replayed as a CUDA graph.

On a GPU the time of these small networks is that of launching kernels. Batches of one padded shape
repeat the same kernels, so the whole step is recorded once per shape and then replayed.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.nn.refining import Network
from factormer.problem.problem import Problem
from factormer_lab.train.config import TrainConfig
from factormer_lab.train.objective import unrolled_loss
from factormer_lab.train.rollout import rollout
from factormer_lab.train.synthetic import Stack

_log = logging.getLogger(__name__)


class Learner:
    """A network, its optimiser and its average: all that changes in training."""

    def __init__(self, model: Network, config: TrainConfig):
        self.config, self.model = config, model
        self.average = copy.deepcopy(model).requires_grad_(False)
        self.on_gpu = next(model.parameters()).is_cuda
        self.optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=torch.tensor(config.lr, device="cuda") if self.on_gpu else config.lr,
            betas=(0.9, config.beta2),
            weight_decay=config.weight_decay,
            fused=self.on_gpu,
            capturable=self.on_gpu,
        )
        self.records = self.on_gpu  # until a step turns out not to be recordable
        self._graphs: dict[tuple[Any, ...], tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor]] = {}

    def step(self, batch: Stack, *, n_accel: int, lr: float) -> Float[Tensor, ""]:
        """Take one step on a batch; return its loss."""
        for group in self.optimizer.param_groups:
            group["lr"].fill_(lr) if self.on_gpu else group.update(lr=lr)
        if self.records:
            try:
                return self._replay(batch, n_accel)
            except RuntimeError as error:
                self.records = False
                self._graphs.clear()
                _log.warning(
                    "updates cannot be recorded as a CUDA graph (%s): the run goes on without one, "
                    "and several times slower",
                    error,
                )
        return self._step(batch, n_accel)

    def _step(self, batch: Stack, n_accel: int) -> Tensor:
        with _precision("high" if self.config.tf32 and self.on_gpu else None):
            loss = self._loss(batch, n_accel)
            self.optimizer.zero_grad()
            loss.backward()
        self._condition_gradients()
        self.optimizer.step()
        self._update_average()
        return loss.detach()

    def _loss(self, batch: Stack, n_accel: int) -> Tensor:
        config = self.config
        points = rollout(self.model, batch.problem, batch.x0, n_accel=n_accel)
        trajectory = [next(points) for _ in range(config.n_steps)]
        return unrolled_loss(
            batch.problem, trajectory, gamma=config.gamma, objective=config.objective
        )

    def _condition_gradients(self) -> None:
        """Clip the norm; gradients that are not finite count as zero.

        All gradients are one vector in the meantime: few kernels in place of two for each weight.
        """
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        whole = torch.cat([gradient.flatten() for gradient in gradients])
        norm = whole.norm()
        factor = (self.config.clip or math.inf) / norm.clamp(min=1e-30)
        factor = torch.where(norm.isfinite(), factor.clamp(max=1), 0)
        parts = whole.nan_to_num_(0, 0, 0).mul_(factor).split([g.numel() for g in gradients])
        shaped = [part.view_as(g) for part, g in zip(parts, gradients, strict=True)]
        torch._foreach_copy_(gradients, shaped)  # pyright: ignore[reportPrivateImportUsage]

    @torch.no_grad()
    def _update_average(self) -> None:
        averages, weights = (tuple(net.parameters()) for net in (self.average, self.model))
        torch._foreach_lerp_(  # pyright: ignore[reportPrivateImportUsage]
            averages, weights, 1 - self.config.ema
        )

    def _replay(self, batch: Stack, n_accel: int) -> Tensor:
        inputs = _tensors(batch)
        key = (n_accel, *(t.shape for t in inputs))
        if key not in self._graphs:
            for other in [k for k in self._graphs if k[0] != n_accel]:
                del self._graphs[other]  # of an earlier part of the curriculum
            self._graphs[key] = self._record(inputs, batch.problem.rank, n_accel)
        graph, static, loss = self._graphs[key]
        for target, source in zip(static, inputs, strict=True):
            target.copy_(source)
        graph.replay()
        return loss

    def _record(
        self, inputs: list[Tensor], rank: int, n_accel: int
    ) -> tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor]:
        """Record a step; warming up changes the weights, so they are put back afterwards."""
        static = [t.clone() for t in inputs]
        before = copy.deepcopy(self.state())

        def step() -> Tensor:  # a new stack each time: a matrix keeps what it has computed
            return self._step(_stack(static, rank), n_accel)

        try:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(2):
                    step()
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                loss = step()
        finally:
            self.restore(before)
        return graph, static, loss

    def state(self) -> dict[str, Any]:
        """All that changes, as plain tensors and numbers."""
        return {
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict()["state"],
        }

    @torch.no_grad()
    def restore(self, state: dict[str, Any]) -> None:
        """Go back to a state, in place, so that recorded graphs stay valid."""
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        moments = self.optimizer.state
        for index, parameter in enumerate(self.model.parameters()):
            saved = state["optimizer"].get(index)
            if parameter not in moments:
                if saved is not None:
                    moments[parameter] = {k: v.clone() for k, v in saved.items()}
                continue
            for name, tensor in moments[parameter].items():
                tensor.copy_(saved[name]) if saved is not None else tensor.zero_()


@contextmanager
def _precision(name: str | None) -> Iterator[None]:
    """Let products of float32 have the precision that torch calls so; None: that of before."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name or before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _tensors(batch: Stack) -> list[Tensor]:
    V = batch.problem.V
    assert isinstance(V, Dense)
    assert V.rows is not None
    assert V.cols is not None
    return [V.entries, V.rows, V.cols, *batch.x0]


def _stack(tensors: list[Tensor], rank: int) -> Stack:
    entries, rows, cols, W, H = tensors
    return Stack(Problem(Dense(entries, rows, cols), rank), Factors(W, H))
