"""The configs of the experiments run: two optimiser steps of a shrunken copy of each."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from factormer.nn.factormer import ModelConfig
from factormer.nn.zoo import models
from factormer_lab.train import command, synthetic
from factormer_lab.train.anyrank.config import AnyRankTraining
from factormer_lab.train.anyrank.course import AnyRankCourse
from factormer_lab.train.config import TrainConfig, read_table
from factormer_lab.train.factormer import train_factormer
from factormer_lab.train.loop import train
from factormer_lab.train.synthetic import SizeClass
from lab.tests.train.anyrank.test_course import QUICK

FILES = sorted((Path(__file__).parents[2] / "configs").glob("*.toml"))
ANY_RANK = [path for path in FILES if read_table(path).get("kind") == "any-rank"]
CONFIGS = [path for path in FILES if "kind" not in read_table(path)]
each_file = pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)


def shrunken(config: TrainConfig) -> TrainConfig:
    """Make of a recipe one of two steps, for a smaller network on fewer and smaller matrices."""
    model = replace(config.model, width=8, heads=2, n_pairs=1, ffn_width=8)
    return replace(
        config,
        model=model,
        copies=1,
        up_to_100=False,
        batch=min(config.batch, 2),
        large_batch=min(config.large_batch, 2),
        small_visits=1,
        epochs=1,
    )


@pytest.fixture
def _two_batches(request, monkeypatch):
    """One class of two batches in place of the 15 000 matrices."""
    batch = shrunken(TrainConfig.load(request.getfixturevalue("path"))).batch
    classes = [SizeClass(2 * batch, (10, 12), (10, 12))]
    monkeypatch.setattr(synthetic, "TRAINING", classes)
    monkeypatch.setattr(synthetic, "VALIDATION", dict.fromkeys(("small", "large"), classes[0]))


def test_there_are_configs():
    assert CONFIGS


@each_file
def test_config_is_named_after_its_file(path):
    assert TrainConfig.load(path).name == path.stem


@each_file
@pytest.mark.usefixtures("_two_batches")
def test_config_trains_for_two_steps(path, tmp_path):
    config, events = shrunken(TrainConfig.load(path)), []
    run = train_factormer(config, tmp_path, report=events.append)
    assert (run.step, run.finished) == (2, True)
    (loss,) = (event["loss"] for event in events if event["event"] == "step")
    assert math.isfinite(loss)
    assert all(p.isfinite().all() for p in run.model.parameters())
    assert all(math.isfinite(x) for medians in run.figures.values() for x in medians)


@pytest.mark.parametrize("name", ["init-r10", "accel-r10", "init-r10-paper", "accel-r10-paper"])
def test_shipped_networks_have_a_config_of_the_papers_size(name):
    trained = models()[name].training["options"]["name"]
    (path,) = (path for path in CONFIGS if path.stem == trained)
    model, paper = TrainConfig.load(path).model, ModelConfig()
    assert model == models()[name].config
    free = {key: getattr(model, key) for key in ("variant", "n_points", "normalize", "shared")}
    assert model == replace(paper, **free)


def test_steps_change_the_weights(tmp_path, monkeypatch):
    size = SizeClass(4, (10, 12), (10, 12))
    monkeypatch.setattr(synthetic, "TRAINING", [size])
    monkeypatch.setattr(synthetic, "VALIDATION", dict.fromkeys(("small", "large"), size))
    config = replace(shrunken(TrainConfig.load(CONFIGS[0])), batch=2, warmup=0, ema=0.0)
    moved, still = (
        train_factormer(replace(config, lr=lr), tmp_path / str(lr)).model.extract.bias
        for lr in (1e-3, 0.0)
    )
    assert not torch.equal(moved, still)


@pytest.mark.parametrize("path", ANY_RANK, ids=lambda path: path.stem)
def test_config_of_an_any_rank_network_trains_for_two_steps(path, tmp_path):
    config = AnyRankTraining.load(path)
    assert config.name == path.stem
    k, model = config.truncate, replace(config.model, width=4)
    small = replace(config, n_buckets=2, lanes=1, per_kind=1, max_size=14, model=model)
    small = replace(small, min_rank=2, max_rank=3)
    small = replace(small, n_reference=2 * k, n_steps=2, batch=4, n_iter=k, horizon=2)
    course = partial(AnyRankCourse, evaluation=QUICK)
    run = train(course, small, tmp_path)
    assert (run.step, run.finished) == (2, True)
    assert all(p.isfinite().all() for p in run.model.parameters())


def test_acceleration_begins_from_the_shipped_initialization_and_goes_on(tmp_path, monkeypatch):
    size = SizeClass(4, (10, 12), (10, 12))
    monkeypatch.setattr(synthetic, "TRAINING", [size])
    monkeypatch.setattr(synthetic, "VALIDATION", dict.fromkeys(("small", "large"), size))
    kind = command.read(Path("accel-r10-paper"), seconds=1.5)
    card, start = models()["init-r10-paper"], kind.warm_start
    assert kind.options.warm_start == card.name
    assert start.config == card.config == replace(kind.options.model, n_points=1)
    options = replace(
        kind.options, copies=1, up_to_100=False, batch=2, small_visits=1, n_steps=2, warmup=0
    )
    events = []
    first, second = (
        train_factormer(
            options, tmp_path, warm_start=start, max_seconds=limit, report=events.append
        )
        for limit in (0.0, math.inf)
    )
    assert not first.finished
    assert second.finished
    assert second.step > first.step
    told = str(kind.make_card(options, second, device="cpu"))
    assert f"begun from\n      name: {card.name}" in told
    trained = second.model.state_dict()
    assert not torch.equal(trained["extract.weight"], start.state_dict()["extract.weight"])


def test_small_variant_is_the_recipe_of_the_initialization():
    small, whole = (
        TrainConfig.load(path)
        for name in ("init-r10-paper-small", "init-r10-paper")
        for path in CONFIGS
        if path.stem == name
    )
    for option in ("alive", "n_steps", "objective", "schedule", "clip", "beta2", "weight_decay"):
        assert getattr(small, option) == getattr(whole, option)
    assert not small.model.shared
    assert small.model.width < whole.model.width
