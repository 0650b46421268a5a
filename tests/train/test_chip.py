"""Many updates in one launch are the updates of the Learner, and resume in the same way."""

import copy
from dataclasses import replace

import pytest
import torch

from factormer.train.chip import ChipLearner, flattened, unflattened, unserved
from factormer.train.config import TrainConfig
from factormer.train.factormer import epoch_order, fresh, learning_rate, train_factormer
from factormer.train.launches import train_together
from factormer.train.optimise import Learner
from factormer.train.synthetic import training_set
from tests.networks import small_config
from tests.train import emulated
from tests.train.cases import N_BATCHES, assert_same_weights, shrink

needs_a_compiler = pytest.mark.skipif(emulated.COMPILER is None, reason="no C++ compiler")
CONFIG = TrainConfig(name="tiny", model=small_config(), n_steps=4, n_accel=3, lr=1e-3, epochs=2)
KINDS = {
    "initialization": replace(CONFIG, model=small_config(normalize=False)),
    "acceleration": replace(CONFIG, model=small_config(n_points=2), curriculum_epochs=1),
}
EPOCH = 2 * N_BATCHES  # at batch size one


@pytest.fixture(autouse=True)
def _small_matrices(monkeypatch):
    shrink(monkeypatch.setattr)


@pytest.fixture
def _on_the_processor(monkeypatch):
    monkeypatch.setattr(
        ChipLearner, "launch", lambda self, updates, stream, blocks: emulated.launch(self, updates)
    )


def learners(config: TrainConfig):
    data = [s.to("cpu", torch.float32) for s in training_set(3, config.noise, 1, seed=0)]
    model = fresh(config)
    chip = ChipLearner(copy.deepcopy(model), config, data, "cpu")
    return Learner(model, config), chip, data


@needs_a_compiler
@pytest.mark.parametrize("kind", KINDS)
def test_updates_in_one_launch_are_those_of_the_learner(kind):
    config = KINDS[kind]
    slow, chip, data = learners(config)
    order = (epoch_order(data, config, 0) + epoch_order(data, config, 1))[:12]
    rates = [learning_rate(config, step, EPOCH) for step in range(len(order))]
    for span, n_accel in ((slice(0, 6), 2), (slice(6, 12), 3)):
        expected = [
            slow.step(data[k].select(index, crop=True), n_accel=n_accel, lr=lr).item()
            for (k, index), lr in zip(order[span], rates[span], strict=True)
        ]
        losses = emulated.launch(chip, chip.prepared(order[span], rates[span], n_accel))
        torch.testing.assert_close(losses, torch.tensor(expected), rtol=2e-3, atol=1e-6)
    chip.state()
    for a, b in zip(chip.average.parameters(), slow.average.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=2e-4)  # a rate is 1e-3


@needs_a_compiler
def test_first_gradient_is_that_of_the_learner():
    config = KINDS["acceleration"]
    slow, chip, data = learners(config)
    ((k, index),) = epoch_order(data, config, 0)[:1]
    slow.step(data[k].select(index, crop=True), n_accel=3, lr=1e-3)
    emulated.launch(chip, chip.prepared([(k, index)], [1e-3], 3))
    expected, found = slow.state()["optimizer"], chip.state()["optimizer"]
    for number, moments in expected.items():
        scale = float(moments["exp_avg"].abs().max())
        difference = (moments["exp_avg"] - found[number]["exp_avg"]).abs().max()
        assert float(difference) <= 1e-2 * scale + 1e-9  # float32; a missing term is all of it
        assert moments["step"] == found[number]["step"]


@needs_a_compiler
def test_blocks_and_threads_do_not_change_a_bit():
    found = []
    for blocks, threads in ((1, 1), (2, 2)):
        _, chip, data = learners(KINDS["acceleration"])
        updates = chip.prepared(epoch_order(data, CONFIG, 0)[:2], [1e-3] * 2, 2)
        emulated.launch(chip, updates, blocks, threads)
        found.append(chip.weights.theta)
    assert torch.equal(*found)


@needs_a_compiler
@pytest.mark.usefixtures("_on_the_processor")
def test_runs_by_launches_resume_exactly_and_go_on_in_the_plain_loop(tmp_path):
    configs = [replace(config, name=kind) for kind, config in KINDS.items()]
    whole = train_together([(c, tmp_path / "a" / c.name) for c in configs], device="cpu")
    assert [run.step for run in whole] == [2 * EPOCH] * 2
    stopped = [(c, tmp_path / "b" / c.name) for c in configs]
    while not all(run.finished for run in train_together(stopped, device="cpu", max_seconds=0.0)):
        pass
    again = train_together(stopped, device="cpu")
    for run, other in zip(whole, again, strict=True):
        assert_same_weights(run.model, other.model)
    plain = train_factormer(configs[0], stopped[0][1])  # reads the checkpoint of the other
    assert plain.finished
    assert_same_weights(plain.model, whole[0].model)


def test_weights_survive_being_flattened():
    _, chip, _ = learners(CONFIG)
    named = dict(chip.average.named_parameters())
    vector = flattened({k: v.detach() for k, v in named.items()}, chip.layout)
    back = unflattened(vector, chip.layout, named)
    assert back.keys() == named.keys()
    assert all(torch.equal(back[name], named[name]) for name in named)


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"batch": 2}, "batch is 1"), ({"ema": 0.9}, "ema is 0"), ({"clip": 1.0}, "clip is 0")],
)
def test_a_run_that_the_kernel_does_not_serve_is_refused_with_a_sentence(changes, words):
    config = replace(CONFIG, **changes)
    assert unserved(CONFIG) is None
    assert words in str(unserved(config))
    with pytest.raises(ValueError, match=words):
        ChipLearner(fresh(config), config, training_set(3, 0.01, 1, seed=0), "cpu")
