"""A Learner that stays on the GPU: hundreds of updates at batch size one in each launch.

At batch size one an update is a few hundred small dependent products: launched one by one, even
from a recorded graph, the launches are all of its time. `kernels/learning.cu` makes the updates in
one launch. The twin is `optimise.Learner`, whose states it reads and writes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from factormer.data import Dense
from factormer.kernels import learning
from factormer.nn.factormer import ModelConfig
from factormer.nn.refining import Network
from factormer.train.config import TrainConfig
from factormer.train.synthetic import Stack

_BETAS = 0.9, 0.999


def unserved(config: TrainConfig) -> str | None:
    """What of a run the kernel does not do, in words; None if it does all."""
    model = config.model
    wanted = {
        "variant is 'paper'": model.variant == "paper",
        "scale_by_width is false": not model.scale_by_width,
        "batch is 1": config.batch == 1,
        "objective is 'squared'": config.objective == "squared",
        "clip is 0": not config.clip,
        "ema is 0": not config.ema,
        "width and ffn_width are multiples of 4": not (model.width % 4 or model.ffn_width % 4),
        "width is a multiple of heads": not model.width % model.heads,
        "n_accel is at most n_steps": config.n_accel <= config.n_steps,
    }
    missing = [words for words, is_met in wanted.items() if not is_met]
    return ", ".join(missing) or None


class Part(NamedTuple):
    """One matrix, of columns of several weights side by side, or one vector, among all numbers."""

    names: tuple[str, ...]
    outs: int
    ins: int = 1


def parts(config: ModelConfig, sizes: learning.Sizes) -> Iterator[Part]:
    """The weights in the order of `learning.cu`."""
    d, f, e = config.width, config.ffn_width, sizes.edge_width
    for layer in range(config.n_pairs):
        a, at = f"layers.{layer}.attention.", f"layers.{layer}."
        yield Part((a + "query.weight",), d, d)
        yield Part((a + "node_key.weight", a + "edge_key.weight"), d, e)
        yield Part((a + "node_value.weight", a + "edge_value.weight"), d, e)
        yield Part((at + "feed_forward.0.weight",), f, d)
        yield Part((at + "feed_forward.2.weight",), d, f)
        yield Part((a + "query.bias",), d)
        yield Part((a + "node_value.bias",), d)
        yield Part((at + "feed_forward.0.bias",), f)
        yield Part((at + "feed_forward.2.bias",), d)
        for norm in ("norm_message", "norm_output"):
            exists = norm == "norm_message" or layer < config.n_pairs - 1
            for kind in ("weight", "bias"):
                yield Part((f"{at}{norm}.{kind}",) if exists else (), d)
    yield Part(("embed.weight",), d, config.n_points * config.rank)
    yield Part(("embed.bias",), d)
    yield Part(("extract.weight",), config.rank, d)
    yield Part(("extract.bias",), config.rank)


def flattened(
    values: Mapping[str, Tensor], layout: Sequence[Part], *, turned: bool = False
) -> Tensor:
    """All numbers in one vector, missing columns as zeros; `turned`: matrices transposed."""
    pieces = []
    for part in layout:
        whole = torch.zeros(part.outs, part.ins)
        if part.names:
            given = torch.cat([values[name].cpu().reshape(part.outs, -1) for name in part.names], 1)
            whole[:, : given.shape[1]] = given
        pieces.append((whole.mT if turned else whole).flatten())
    return torch.cat(pieces)


def unflattened(
    vector: Tensor, layout: Sequence[Part], like: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The weights by name, from one vector."""
    found, at = {}, 0
    vector = vector.cpu()
    for part in layout:
        whole = vector[at : at + part.outs * part.ins].view(part.outs, part.ins)
        at, column = at + part.outs * part.ins, 0
        for name in part.names:
            width = like[name].numel() // part.outs
            found[name] = whole[:, column : column + width].reshape(like[name].shape).clone()
            column += width
    return found


def packed(data: Sequence[Stack], *, normalize: bool, device: torch.device) -> learning.Problems:
    """The problems of all classes, none padded; class after class."""
    table, matrices, starts, scales = [], [], [], []
    v_at = x_at = 0
    for stack in data:
        V = stack.problem.V
        assert isinstance(V, Dense)
        assert V.rows is not None
        assert V.cols is not None
        entries, (W, H) = V.entries.cpu().float(), (F.cpu().float() for F in stack.x0)
        sizes = zip(V.rows.sum(-1).tolist(), V.cols.sum(-1).tolist(), strict=True)
        means = stack.problem.mean().tolist()
        for k, (m, n) in enumerate(sizes):
            own = entries[k, :m, :n]
            matrices += [own.flatten(), own.mT.flatten()]
            starts += [H[k, :n].flatten(), W[k, :m].flatten()]
            scales.append(means[k] if normalize and means[k] > 0 else 1.0)
            table.append((m, n, v_at, x_at))
            v_at, x_at = v_at + 2 * m * n, x_at + (m + n) * stack.problem.rank
    return learning.Problems(
        torch.tensor(table, device=device),
        torch.cat(matrices).to(device),
        torch.cat(starts).to(device),
        torch.tensor(scales, dtype=torch.float32, device=device),
    )


class ChipLearner:
    """All that changes in training, on the GPU; updates are made in the order given."""

    def __init__(self, model: Network, config: TrainConfig, data: Sequence[Stack], device: str):
        if missing := unserved(config):
            raise ValueError(
                f"{config.name} is not for the kernel that makes many updates at once, "
                f"which works where {missing}; train it without"
            )
        self.config, self.device = config, torch.device(device)
        self.average = model  # the last weights, brought up to date by `state`
        own, shapes = config.model, [stack.problem.V.shape for stack in data]
        self.sizes = learning.Sizes(
            own.width,
            own.heads,
            own.ffn_width,
            own.n_pairs,
            own.rank,
            own.n_points,
            rows=max(max(m, n) for _, m, n in shapes),
        )
        self.layout = list(parts(own, self.sizes))
        self.recipe = learning.Recipe(config.n_steps, config.gamma, config.weight_decay)
        self.problems = packed(data, normalize=own.normalize, device=self.device)
        self.first_of = [sum(len(stack) for stack in data[:k]) for k in range(len(data))]
        total = max(m + n for _, m, n in shapes)
        self.room = learning.Room.make(self.sizes, config.n_steps, total, self.device)
        self.n_updates = 0
        zeros = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
        self._take(dict(model.named_parameters()), zeros, zeros)

    @torch.no_grad()
    def _take(self, *named: Mapping[str, Tensor]) -> None:
        theta, first, second = (flattened(values, self.layout) for values in named)
        turned = flattened(named[0], self.layout, turned=True)
        held = (tensor.to(self.device) for tensor in (theta, turned, first, second))
        self.weights = learning.Weights(*held)

    def prepared(
        self, batches: Sequence[tuple[int, Tensor]], rates: Sequence[float], n_accel: int
    ) -> learning.Updates:
        """The next updates: the batches as of `epoch_order`, and a learning rate for each."""
        problems = [self.first_of[k] + int(index) for k, index in batches]
        tasks = torch.tensor([(p, n_accel) for p in problems], dtype=torch.int32)
        steps = range(self.n_updates + 1, self.n_updates + 1 + len(problems))
        corrected = [
            (lr, lr / (1 - _BETAS[0] ** step), math.sqrt(1 - _BETAS[1] ** step))
            for lr, step in zip(rates, steps, strict=True)
        ]
        self.n_updates += len(problems)
        numbers = torch.tensor(corrected, dtype=torch.float64).float()
        return learning.Updates(tasks.to(self.device), numbers.to(self.device))

    def arguments(self, updates: learning.Updates) -> tuple[tuple[Any, ...], Tensor]:
        """What the kernel is called with, and where it will write the losses."""
        k = len(updates.tasks)
        arrived = torch.zeros(1, dtype=torch.int32, device=self.device)
        bad = torch.zeros(k, dtype=torch.int32, device=self.device)
        losses = torch.zeros(k, device=self.device)
        self._held = updates, arrived, bad, losses  # until the next launch
        return learning.arguments(
            self.weights, self.problems, updates, self.recipe, self.room, (arrived, bad, losses)
        ), losses

    def launch(
        self, updates: learning.Updates, stream: torch.cuda.Stream | None, blocks: int
    ) -> Tensor:
        """Queue the updates; their losses are known when the stream is done."""
        values, losses = self.arguments(updates)
        assert stream is not None
        stream.wait_stream(torch.cuda.current_stream(self.device))
        learning.launch(self.sizes, blocks, stream, values)
        return losses

    @torch.no_grad()
    def state(self) -> dict[str, Any]:
        """As `Learner.state`; the network is brought up to date."""
        like = dict(self.average.named_parameters())
        vectors = (self.weights.theta, self.weights.first, self.weights.second)
        theta, first, second = (unflattened(v, self.layout, like) for v in vectors)
        for name, parameter in like.items():
            parameter.copy_(theta[name])
        step = torch.tensor(float(self.n_updates))
        moments = {
            index: {"step": step.clone(), "exp_avg": first[name], "exp_avg_sq": second[name]}
            for index, name in enumerate(like)
        }
        return {
            "model": theta,
            "average": {name: tensor.clone() for name, tensor in theta.items()},
            "optimizer": moments if self.n_updates else {},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to a state of this learner or of its twin."""
        names = [name for name, _ in self.average.named_parameters()]
        moments = state["optimizer"]
        zeros = {name: torch.zeros_like(state["model"][name]) for name in names}
        pairs = [
            {name: moments[index][key] for index, name in enumerate(names)} if moments else zeros
            for key in ("exp_avg", "exp_avg_sq")
        ]
        self.n_updates = int(moments[0]["step"].item()) if moments else 0
        self._take(state["model"], *pairs)
        self.state()
