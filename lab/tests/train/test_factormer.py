"""Training learns, and stopping it in whatever way changes nothing but the time it takes."""

import json
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.networks import small_config
from tests.signals import interrupted_after

from factormer.nn.refining import Network
from factormer_lab.train import loop
from factormer_lab.train.config import TrainConfig
from factormer_lab.train.factormer import epoch_order, fresh, learning_rate, train_factormer
from factormer_lab.train.loop import Run
from factormer_lab.train.objective import unrolled_loss
from factormer_lab.train.optimise import Learner
from factormer_lab.train.rollout import rollout
from factormer_lab.train.synthetic import training_set
from lab.tests.train.cases import CONFIG, LONG, N_BATCHES, assert_same_weights, shrink

ROOT = Path(__file__).parents[3]
TOTAL = CONFIG.epochs * N_BATCHES


@pytest.fixture(autouse=True)
def _small_matrices(monkeypatch):
    shrink(monkeypatch.setattr)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Run[Network]:
    """The run that others are compared with."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        shrink(monkeypatch.setattr)
        return train_factormer(CONFIG, tmp_path_factory.mktemp("uninterrupted"))


def metrics(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def mean_objective(model: Network, config: TrainConfig) -> float:
    values = []
    for s in training_set(config.model.rank, config.sigma, config.copies, seed=config.seed):
        points = rollout(model, s.problem, s.x0, n_accel=config.n_accel)
        trajectory = [next(points) for _ in range(config.n_steps)]
        value = unrolled_loss(s.problem, trajectory, gamma=config.gamma, objective="squared")
        values.append(value.item())
    return sum(values) / len(values)


# Learning


@pytest.mark.parametrize(
    "model",
    [small_config(), small_config(n_points=2), small_config(variant="refining")],
    ids=["initialization", "acceleration", "refining"],
)
def test_training_lowers_the_objective(model, tmp_path):
    config = replace(CONFIG, model=model, epochs=5, lr=1e-2, ema=0.0)
    untrained = train_factormer(replace(config, lr=0.0, epochs=1), tmp_path / "untrained").model
    trained = train_factormer(config, tmp_path / "trained").model
    assert mean_objective(trained, config) < 0.9 * mean_objective(untrained, config)


@pytest.mark.parametrize("seed", range(4))
def test_no_component_begins_dead_if_alive(seed):
    config = replace(CONFIG, alive=True, seed=seed)
    for stack in training_set(config.model.rank, config.sigma, config.copies, seed=seed):
        W, H = fresh(config)(stack.x0, stack.problem.V)
        assert bool((W.amax(dim=-2) > 0).all())
        assert bool((H.amax(dim=-2) > 0).all())


def test_alive_is_for_fresh_networks_of_the_paper():
    for changes in ({"model": small_config(variant="refining")}, {"warm_start": "init-r10-paper"}):
        with pytest.raises(ValueError, match="alive"):
            replace(CONFIG, alive=True, **changes)


def test_finished_run_reports_its_figures(tmp_path):
    events = []
    run = train_factormer(CONFIG, tmp_path, report=events.append)
    assert run.finished
    assert run.step == TOTAL
    assert {name: len(figures) for name, figures in run.figures.items()} == {
        "small": 21,
        "large": 21,
    }
    assert [e["step"] for e in events if e["event"] == "figures"] == [4, 8, 12]
    assert [line["step"] for line in metrics(tmp_path)] == [4, 8, 12, 12]


def test_same_config_gives_the_same_weights_and_another_seed_others(uninterrupted, tmp_path):
    again = train_factormer(CONFIG, tmp_path / "again").model
    assert_same_weights(again, uninterrupted.model)
    other = train_factormer(replace(CONFIG, seed=4), tmp_path / "other").model
    assert not torch.equal(other.embed.weight, uninterrupted.model.embed.weight)


def test_training_leaves_the_global_generator_alone(tmp_path):
    before = torch.get_rng_state()
    train_factormer(replace(CONFIG, epochs=1), tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


def test_warm_start_begins_from_the_weights_given(uninterrupted, tmp_path):
    config = replace(CONFIG, lr=0.0, epochs=1)
    assert_same_weights(
        train_factormer(config, tmp_path / "same", warm_start=uninterrupted.model).model,
        uninterrupted.model,
    )


def test_warm_started_acceleration_looks_at_the_newest_point(uninterrupted, tmp_path):
    config = replace(CONFIG, model=small_config(n_points=2), lr=0.0, epochs=1)
    model = train_factormer(config, tmp_path, warm_start=uninterrupted.model).model
    r = config.model.rank
    assert not model.embed.weight[:, :r].any()
    assert torch.equal(model.embed.weight[:, r:], uninterrupted.model.embed.weight)


# Resuming


def test_run_stopped_after_every_step_gives_the_same_weights_and_log(uninterrupted, tmp_path):
    steps = []
    while not (run := train_factormer(CONFIG, tmp_path, max_seconds=0.0)).finished:
        steps.append(run.step)
    assert steps == list(range(1, TOTAL))
    assert_same_weights(run.model, uninterrupted.model)
    epochs = [line["step"] for line in metrics(tmp_path) if "small" in line]
    assert epochs == [N_BATCHES * (k + 1) for k in range(CONFIG.epochs)]


def test_interrupted_run_resumes_to_the_same_weights(uninterrupted, tmp_path):
    def interrupt(event):
        if event["event"] == "figures" and event["step"] == 2 * N_BATCHES:
            signal.raise_signal(signal.SIGINT)

    stopped = train_factormer(CONFIG, tmp_path, report=interrupt)
    assert not stopped.finished
    assert stopped.step == 2 * N_BATCHES
    assert_same_weights(train_factormer(CONFIG, tmp_path).model, uninterrupted.model)


def test_interrupt_just_after_an_update_resumes_to_the_same_weights(
    uninterrupted, tmp_path, monkeypatch
):
    plain, calls = Learner.step, iter(range(TOTAL))

    def step(self, batch, *, n_accel, lr):
        loss = plain(self, batch, n_accel=n_accel, lr=lr)
        if next(calls) == 5:
            signal.raise_signal(signal.SIGINT)
        return loss

    monkeypatch.setattr(Learner, "step", step)
    assert not train_factormer(CONFIG, tmp_path).finished
    monkeypatch.setattr(Learner, "step", plain)
    assert_same_weights(train_factormer(CONFIG, tmp_path).model, uninterrupted.model)


def test_finished_run_is_not_trained_further(uninterrupted, tmp_path):
    train_factormer(CONFIG, tmp_path)
    again = train_factormer(CONFIG, tmp_path)
    assert again.finished
    assert_same_weights(again.model, uninterrupted.model)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in a gc hook
@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2, 3))])
def test_run_interrupted_at_any_moments_gives_the_same_weights(tmp_path, uninterrupted, seed):
    """While data are drawn it is a KeyboardInterrupt; after that a checkpoint is kept."""
    moments, run = random.Random(seed), None
    for patience in range(1, 100):
        try:
            with interrupted_after(moments.uniform(0, 0.1 * patience)):
                run = train_factormer(CONFIG, tmp_path)
        except KeyboardInterrupt:
            continue
        assert (tmp_path / "checkpoint.pt").exists()
        if run.finished:
            break
    assert not list(tmp_path.glob(".*"))
    assert run is not None
    assert_same_weights(run.model, uninterrupted.model)
    steps = [line["step"] for line in metrics(tmp_path)]
    assert steps == sorted(steps)


def test_killed_process_resumes_to_the_same_weights(tmp_path):
    """SIGKILL at some moment of the third epoch or later: nothing gets to clean up."""
    killed = tmp_path / "killed"
    code = "import sys; from lab.tests.train.cases import train_to_be_killed as t; t(sys.argv[1])"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(killed)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        seen = [process.stdout.readline() for _ in range(2)]
        process.kill()
    assert seen == ["4\n", "8\n"]
    assert process.returncode == -signal.SIGKILL
    resumed_at = torch.load(killed / "checkpoint.pt", weights_only=True)["step"]
    assert 7 <= resumed_at < LONG.epochs * N_BATCHES
    resumed, whole = train_factormer(LONG, killed), train_factormer(LONG, tmp_path / "whole")
    assert resumed.finished
    assert_same_weights(resumed.model, whole.model)


# Timed runs


class Clock:
    """A clock that moves by a second each time it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now


TIMED = replace(CONFIG, seconds=200.0, schedule="cosine", lr_decay=1.0)


def test_timed_run_ends_with_its_seconds_and_its_rate_at_zero(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "time", Clock())
    run = train_factormer(TIMED, tmp_path)
    assert run.finished
    assert run.total == run.step > TOTAL  # more than the epochs of the config
    rates = [line["lr"] for line in metrics(tmp_path) if "lr" in line]
    assert rates[-1] == 0
    assert set(run.figures) == {"small", "large"}


def test_timed_run_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "time", Clock())
    first = train_factormer(TIMED, tmp_path, max_seconds=60.0)
    assert not first.finished
    assert 60 < first.seconds < 100
    second = train_factormer(TIMED, tmp_path)
    assert second.finished
    assert second.step > first.step
    again = train_factormer(TIMED, tmp_path)
    assert (again.finished, again.step) == (True, second.step)
    assert_same_weights(again.model, second.model)


def test_timed_acceleration_grows_and_begins_from_an_initialization(
    uninterrupted, tmp_path, monkeypatch
):
    monkeypatch.setattr(loop, "time", Clock())
    seen, plain = [], Learner.step

    def step(self, batch, *, n_accel, lr):
        seen.append(n_accel)
        return plain(self, batch, n_accel=n_accel, lr=lr)

    monkeypatch.setattr(Learner, "step", step)
    config = replace(TIMED, model=small_config(n_points=2), n_accel=2, curriculum_share=0.5)
    run = train_factormer(config, tmp_path, warm_start=uninterrupted.model)
    assert run.finished
    assert seen == sorted(seen)
    assert set(seen) == {1, 2}


# Refusing


def test_damaged_checkpoint_is_refused_with_a_sentence(tmp_path):
    train_factormer(CONFIG, tmp_path, max_seconds=0.0)
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"(?s)checkpoint\.pt .* is damaged .* remove it"):
        train_factormer(CONFIG, tmp_path)


def test_file_that_is_no_checkpoint_is_refused_with_a_sentence(tmp_path):
    torch.save({"weights": torch.ones(3)}, tmp_path / "checkpoint.pt")
    with pytest.raises(ValueError, match="not a checkpoint"):
        train_factormer(CONFIG, tmp_path)


@pytest.mark.parametrize(
    ("changes", "name"),
    [({"lr": 2e-3}, "lr"), ({"model": small_config(width=4)}, "model"), ({"seed": 9}, "seed")],
)
def test_checkpoint_of_another_config_is_refused_with_what_differs(changes, name, tmp_path):
    train_factormer(CONFIG, tmp_path, max_seconds=0.0)
    with pytest.raises(ValueError, match=rf"another config \(it differs in {name}\); choose"):
        train_factormer(replace(CONFIG, **changes), tmp_path)


def test_batch_larger_than_every_class_is_refused(tmp_path):
    with pytest.raises(ValueError, match="batch"):
        train_factormer(replace(CONFIG, batch=5), tmp_path)


# Order and schedule


def test_epoch_visits_each_matrix_once_in_an_order_of_its_own():
    data = training_set(3, 0.01, 1, seed=0)
    orders = [epoch_order(data, CONFIG, epoch) for epoch in (0, 0, 1)]
    visited = [sorted((k, i) for k, index in o for i in index.tolist()) for o in orders]
    assert visited[0] == [(k, i) for k in range(2) for i in range(4)]
    assert visited[0] == visited[2]
    first, same, second = ([(k, index.tolist()) for k, index in order] for order in orders)
    assert first == same
    assert first != second


def test_small_matrices_are_visited_as_often_as_asked_and_larger_ones_in_batches_of_their_own():
    data = training_set(3, 0.01, 1, seed=0)
    config = replace(CONFIG, batch=4, large_batch=2, small_visits=3)
    sizes = sorted((k, len(index)) for k, index in epoch_order(data, config, 0))
    assert sizes == [(0, 4)] * 3 + [(1, 2)] * 2


def test_learning_rate_restarts_each_epoch_from_a_base_that_decays():
    config, n_batches = TrainConfig(name="paper"), 100
    for epoch in (0, 1, 14):
        rates = [learning_rate(config, epoch * n_batches + b, n_batches) for b in range(n_batches)]
        assert rates[0] == pytest.approx(1e-4 * 0.9**epoch)
        assert rates == sorted(rates, reverse=True)
        assert rates[50] == pytest.approx(rates[0] / 2)
        assert rates[-1] < 1e-3 * rates[0]


def test_cosine_schedule_is_one_cycle_over_the_run():
    config = TrainConfig(name="batched", schedule="cosine", lr_decay=1.0, epochs=10)
    rates = [learning_rate(config, step, 100) for step in range(1000)]
    assert rates[0] == pytest.approx(config.lr)
    assert rates[500] == pytest.approx(config.lr / 2)
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 1e-4 * config.lr


def test_warm_up_is_linear():
    config = TrainConfig(name="batched", schedule="cosine", lr_decay=1.0, warmup=10)
    plain = replace(config, warmup=0)
    shares = [learning_rate(config, s, 1000) / learning_rate(plain, s, 1000) for s in range(12)]
    assert shares == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1])
