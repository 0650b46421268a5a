"""train_any_rank(): rounds of updates, schedule, checkpoints; resumes exactly after a kill."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from factormer.nn.anyrank import AnyRankNetwork
from factormer.train.anyrank.config import AnyRankTraining
from factormer.train.anyrank.evaluate import SHAPES, compare, figures
from factormer.train.anyrank.learner import Learner, Work
from factormer.train.anyrank.own import parts_of
from factormer.train.anyrank.pool import make_pool
from factormer.train.anyrank.rollout import classical, learned
from factormer.train.anyrank.tasks import TASKS
from factormer.train.checkpoint import MetricsLog, alone, load_checkpoint, save_checkpoint
from factormer.train.factormer import Report, check_same_run
from factormer.train.interrupt import HeldInterrupt


@dataclass(frozen=True)
class AnyRankRun:
    """The result of a call: the averaged network, whether it finished, and its figures."""

    model: AnyRankNetwork
    finished: bool
    step: int
    total: int
    seconds: float
    figures: dict[str, Any]


@alone
def train_any_rank(
    config: AnyRankTraining,
    folder: Path,
    *,
    device: str = "cpu",
    max_seconds: float = math.inf,
    warm_start: AnyRankNetwork | None = None,
    report: Report = lambda event: None,
    checkpoint_seconds: float = 60,
    evaluation: dict[str, Any] | None = None,
) -> AnyRankRun:
    """Train in `folder`, continuing from its checkpoint if there is one.

    Stops at the end, or with a checkpoint after `max_seconds` or on Ctrl-C. Work is planned in
    rounds, after which no batch is followed further; a checkpoint is made between two of them, so
    that a resumed run gives the same weights as one that was never stopped.
    """
    started = time.monotonic()
    torch_device = torch.device(device)
    seen, unseen = parts_of(config.data) if config.data else (None, None)
    pool = make_pool(config, torch_device, report, seen)
    smallest = min(len(entry.bucket.V) for entry in pool)
    if config.batch > smallest:
        raise ValueError(f"batch is {config.batch}; it must be at most {smallest}, a bucket")
    network = new_network(config)
    if warm_start is not None:
        network.load_state_dict(warm_start.state_dict())
    learner = Learner(network.to(torch_device), config, pool)
    path, step, seconds_before = folder / "checkpoint.pt", 0, 0.0
    if path.exists():
        saved = load_checkpoint(path, torch_device)
        check_same_run(path, saved["config"], asdict(config))
        learner.restore(saved["learner"])
        step, seconds_before = saved["step"], saved["seconds"]
    log = MetricsLog(folder / "metrics.jsonl", resume_at=step)
    n_batches = [len(entry.bucket.V) // config.batch for entry in pool]
    n_rounds = math.ceil(config.n_steps / config.horizon)
    total = n_rounds * config.horizon

    def elapsed() -> float:
        return seconds_before + time.monotonic() - started

    def save() -> None:
        contents = {"config": asdict(config), "learner": learner.state()}
        save_checkpoint(path, contents | {"step": step, "seconds": elapsed()})

    saved_at, outcomes, logged = time.monotonic(), [], step
    with HeldInterrupt() as interrupt:
        for number in range(step // config.horizon, n_rounds):
            for works in plan(config, number, n_batches):
                outcomes.append(learner.step(works, learning_rate(config, step, total)))
                step += 1
            if step - logged >= 100 or step == total:
                means = [
                    torch.stack(values).mean().item() for values in zip(*outcomes, strict=True)
                ]
                line = dict(zip(("loss", "gain", "refused"), means, strict=True))
                log.write(step=step, seconds=elapsed(), **line)
                report({"event": "step", "step": step, "total": total, **line})
                outcomes, logged = [], step
            if time.monotonic() - saved_at > checkpoint_seconds:
                save()
                saved_at = time.monotonic()
            if interrupt.requested or time.monotonic() - started > max_seconds:
                break
        save()
    found: dict[str, Any] = {}
    if step >= total:  # of a run that is cut short, there is no time to measure
        shapes = tuple(shape for shape in SHAPES if shape[2] <= config.max_rank)
        options = {"device": torch_device, "source": unseen, "shapes": shapes}
        options |= evaluation or {}
        by_base = {base: _figures(config, base, learner.average, options) for base in config.bases}
        found = by_base if len(by_base) > 1 else by_base[config.base]
    return AnyRankRun(learner.average, step >= total, step, total, elapsed(), found)


def _figures(
    config: AnyRankTraining, base: str, network: AnyRankNetwork, options: dict[str, Any]
) -> dict[str, Any]:
    """What the network saves over one of the bases."""
    task = TASKS[base]
    solver = task.solver(config, 0, None)
    options = options | {"source": options["source"] or task.source, "draw": task.draw}
    return figures(compare(learned(network, solver), classical(solver), **options))


def new_network(config: AnyRankTraining) -> AnyRankNetwork:
    """A network that has learned nothing yet, its weights drawn by the seed."""
    with torch.random.fork_rng(devices=[]):  # layers draw from the global generator
        torch.manual_seed(config.seed)
        return AnyRankNetwork(config.model)


def plan(config: AnyRankTraining, number: int, n_batches: list[int]) -> list[list[Work]]:
    """The works of a round: for each of its updates, one per lane.

    Each lane follows a batch for a random number of updates, then takes another, so that early and
    late iterations are always learned from together. A lane has its own buckets.
    """
    rng = torch.Generator().manual_seed(1_000_003 * (config.seed + 1) + number)

    def below(bound: int) -> int:
        return int(torch.randint(bound, (), generator=rng))

    lanes = []
    for lane in range(config.lanes):
        works: list[Work] = []
        own = range(lane, len(n_batches), config.lanes)
        while len(works) < config.horizon:
            left = config.horizon - len(works)
            length = left if below(2) else 1 + below(left)
            bucket = own[below(len(own))]
            batch = below(n_batches[bucket])
            works += [Work(bucket, batch, age) for age in range(length)]
        lanes.append(works)
    return [list(works) for works in zip(*lanes, strict=True)]


def learning_rate(config: AnyRankTraining, step: int, total: int) -> float:
    """Linear warm-up, then a cosine down to a fiftieth."""
    warm = min(1.0, (step + 1) / config.warmup) if config.warmup else 1.0
    return warm * config.lr * (0.02 + 0.98 * (1 + math.cos(math.pi * step / total)) / 2)
