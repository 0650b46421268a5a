"""Training of the Factormer for every rank: one iteration after its layers is what counts."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data.factors import Factors
from factormer.nn.anyfactormer import AnyFactormer
from factormer_lab.train.anyfactormer.config import AnyFactormerTraining
from factormer_lab.train.anyfactormer.pool import Entry, Relative, entry, make_pool, rotations
from factormer_lab.train.anyrank.problems import Synthetic
from factormer_lab.train.anyrank.rollout import rms
from factormer_lab.train.loop import Setting, train
from factormer_lab.train.weights import Averaged, untrained, warm_cosine

_SMALL = 1e-2, 1e-3  # of the best error, and of the size of V: an excess that counts as none
_SHAPES = ((40, 30, 2), (60, 40, 5), (100, 100, 10), (100, 100, 16), (120, 90, 24), (128, 128, 32))


class AnyFactormerCourse:
    """A network on batches of equal shape from a pool of problems, drawn before."""

    def __init__(self, config: AnyFactormerTraining, setting: Setting, *, per_kind: int = 16):
        self.config, self.device, self.per_kind = config, setting.device, per_kind
        self.total = self.epoch = config.n_steps
        self.pool = make_pool(config, setting.device, setting.report)
        model = untrained(partial(AnyFactormer, config.model), config.seed)
        if setting.warm_start is not None:
            model.load_state_dict(setting.warm_start.state_dict())
        self.learner = Averaged(
            model.to(setting.device),
            weight_decay=config.weight_decay,
            clip=config.clip,
            ema=config.ema,
        )

    def update(self, step: int) -> list[dict[str, Tensor]]:
        batch, R = drawn(self.config, self.pool, step)
        loss = loss_of(self.learner.model, batch, R, self.config.marks)
        self.learner.learn(loss, self.rate(step))
        return [{"loss": loss.detach()}]

    def rate(self, step: int) -> float:
        config = self.config
        return warm_cosine(config.lr, step, config.n_steps, warmup=config.warmup, least=0.02)

    def figures(self) -> dict[str, Any]:
        return figures(self.learner.average, self.device, self.per_kind)


train_any_factormer = partial(train, AnyFactormerCourse)


def loss_of(
    model: AnyFactormer, batch: Entry, R: Float[Tensor, "b r r"], marks: tuple[int, ...]
) -> Float[Tensor, ""]:
    """The mean log excess over the best error after an iteration from each marked layer."""
    points, losses = model.layers(batch.x, R, marks[-1]), []
    for k in marks:
        error = after_iteration(batch, points[k - 1])
        losses.append(log_excess(error, batch.best).mean())
    return torch.stack(losses).mean()


def after_iteration(batch: Entry, x: Factors) -> Float[Tensor, " b"]:
    """The error after one iteration from the nonnegative parts."""
    problem = batch.problem
    start = Factors(*(F.clamp(min=0) for F in x))
    W, H = batch.solver.step(problem, batch.solver.init(problem, start)).factors
    return rms(problem, (W @ H.mT - batch.V).square().sum(dim=(-2, -1)).double())


def log_excess(error: Float[Tensor, " b"], best: Float[Tensor, " b"]) -> Float[Tensor, " b"]:
    """The logarithm of what an error has beyond the best, softly bounded below."""
    return ((error - best).clamp(min=0) + _SMALL[0] * best + _SMALL[1]).log()


def drawn(
    config: AnyFactormerTraining, pool: list[Entry], step: int
) -> tuple[Entry, Float[Tensor, "b r r"]]:
    """The batch of an update, and the rotations it begins at."""
    device = pool[0].V.device
    rng = torch.Generator(device).manual_seed(1_000_003 * (config.seed + 1) + step)
    which = torch.Generator().manual_seed(rng.initial_seed())
    chosen = pool[int(torch.randint(len(pool), (), generator=which))]
    index = torch.randint(len(chosen.V), (config.batch,), generator=rng, device=device)
    batch = chosen.some(index)
    return batch, rotations(batch.x, rng)


@torch.no_grad()
def figures(model: AnyFactormer, device: torch.device, per_kind: int) -> dict[str, Any]:
    """Median excess over the best error, in %, one iteration after the network, on new matrices.

    Beside it the same layers with nothing learned: plain projections that overshoot.
    """
    rng = torch.Generator(device).manual_seed(99_000_017)
    plain = AnyFactormer(model.config).to(device)
    found: dict[str, Any] = {}
    for source in (Relative(), Synthetic()):
        rows = {}
        for m, n, r in _SHAPES:
            count = per_kind * (4 if len(source.names) == 1 else 1)
            some = entry((m, n, r), count, rng, source, 200)
            R = rotations(some.x, rng)
            row = {}
            for name, network in (("learned", model), ("plain", plain)):
                error = after_iteration(some, network(some.x, R))
                row[name] = round(100 * float(((error - some.best) / some.best).median()), 2)
            rows[f"{m}×{n}, rank {r}"] = row
        found["one kind" if len(source.names) == 1 else "all kinds"] = rows
    return found
