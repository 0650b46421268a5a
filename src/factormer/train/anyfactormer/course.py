"""train_any_factormer(): updates, schedule, checkpoints; resumes exactly after a kill."""

from __future__ import annotations

import copy
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data.factors import Factors
from factormer.nn.anyfactormer import AnyFactormer
from factormer.train.anyfactormer.config import AnyFactormerTraining
from factormer.train.anyfactormer.pool import Entry, Relative, entry, make_pool, rotations
from factormer.train.anyrank.problems import Synthetic
from factormer.train.anyrank.rollout import rms
from factormer.train.checkpoint import MetricsLog, alone, load_checkpoint, save_checkpoint
from factormer.train.factormer import Report, check_same_run
from factormer.train.interrupt import HeldInterrupt

_LOG = 100  # updates between two lines
_SMALL = 1e-2, 1e-3  # of the best error, and of the size of V: an excess that counts as none
_SHAPES = ((40, 30, 2), (60, 40, 5), (100, 100, 10), (100, 100, 16), (120, 90, 24), (128, 128, 32))


@dataclass(frozen=True)
class AnyFactormerRun:
    """The result of a call: the averaged network, whether it finished, and its figures."""

    model: AnyFactormer
    finished: bool
    step: int
    total: int
    seconds: float
    figures: dict[str, Any]


class Learner:
    """A network, its optimiser and its average: all that changes in training."""

    def __init__(self, model: AnyFactormer, config: AnyFactormerTraining):
        self.config, self.model = config, model
        self.average = copy.deepcopy(model).requires_grad_(False)
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=config.lr, betas=(0.9, 0.98), weight_decay=config.weight_decay
        )
        self.n_updates = 0

    def step(self, batch: Entry, R: Float[Tensor, "b r r"], lr: float) -> Tensor:
        """One update; a gradient that is not finite counts as zero."""
        loss = loss_of(self.model, batch, R, self.config.marks)
        self.optimizer.zero_grad()
        loss.backward()
        weights = list(self.model.parameters())
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        factor = (self.config.clip / norm.clamp(min=1e-12)).clamp(max=1)
        for gradient in gradients:
            gradient.nan_to_num_(0, 0, 0).mul_(torch.where(norm.isfinite(), factor, 0))
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        self.n_updates += 1
        decay = min(self.config.ema, self.n_updates / (self.n_updates + 10))
        with torch.no_grad():
            for average, weight in zip(self.average.parameters(), weights, strict=True):
                average.lerp_(weight, 1 - decay)
        return loss.detach()

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


@alone
def train_any_factormer(
    config: AnyFactormerTraining,
    folder: Path,
    *,
    device: str = "cpu",
    max_seconds: float = math.inf,
    warm_start: AnyFactormer | None = None,
    report: Report = lambda event: None,
    checkpoint_seconds: float = 60,
    per_kind: int = 16,
) -> AnyFactormerRun:
    """Train in `folder`, continuing from its checkpoint if there is one.

    Stops at the end, or with a checkpoint after `max_seconds` or on Ctrl-C. A batch depends on the
    seed and the number of the update alone.
    """
    started = time.monotonic()
    torch_device = torch.device(device)
    pool = make_pool(config, torch_device, report)
    model = new_network(config)
    if warm_start is not None:
        model.load_state_dict(warm_start.state_dict())
    learner = Learner(model.to(torch_device), config)
    path, step, seconds_before = folder / "checkpoint.pt", 0, 0.0
    if path.exists():
        saved = load_checkpoint(path, torch_device)
        check_same_run(path, saved["config"], asdict(config))
        learner.restore(saved["learner"])
        step, seconds_before = saved["step"], saved["seconds"]
    log = MetricsLog(folder / "metrics.jsonl", resume_at=step)

    def elapsed() -> float:
        return seconds_before + time.monotonic() - started

    def save() -> None:
        contents = {"config": asdict(config), "learner": learner.state()}
        save_checkpoint(path, contents | {"step": step, "seconds": elapsed()})

    saved_at, losses = time.monotonic(), []
    with HeldInterrupt() as interrupt:
        while step < config.n_steps:
            batch, R = drawn(config, pool, step)
            losses.append(learner.step(batch, R, learning_rate(config, step)))
            step += 1
            if step % _LOG == 0 or step == config.n_steps:
                line = {"step": step, "loss": torch.stack(losses).mean().item()}
                losses = []
                log.write(seconds=elapsed(), **line)
                report({"event": "step", "total": config.n_steps, **line})
            if time.monotonic() - saved_at > checkpoint_seconds:
                save()
                saved_at = time.monotonic()
            if interrupt.requested or time.monotonic() - started > max_seconds:
                break
        save()
    finished = step >= config.n_steps
    found = figures(learner.average, torch_device, per_kind) if finished else {}
    return AnyFactormerRun(learner.average, finished, step, config.n_steps, elapsed(), found)


def new_network(config: AnyFactormerTraining) -> AnyFactormer:
    """A network that has learned nothing yet, its weights drawn by the seed."""
    with torch.random.fork_rng(devices=[]):  # layers draw from the global generator
        torch.manual_seed(config.seed)
        return AnyFactormer(config.model)


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


def learning_rate(config: AnyFactormerTraining, step: int) -> float:
    """Linear warm-up, then a cosine down to a fiftieth."""
    warm = min(1.0, (step + 1) / config.warmup) if config.warmup else 1.0
    return warm * config.lr * (0.02 + 0.98 * (1 + math.cos(math.pi * step / config.n_steps)) / 2)


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
