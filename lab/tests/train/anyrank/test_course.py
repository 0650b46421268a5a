"""Training lowers the loss, and stopping it changes nothing but the time it takes."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
import torch
from tests.networks import random_any_rank

from factormer.accelerate.cuda_graph import map_tensors
from factormer.nn.anyrank import AnyRankConfig, AnyRankNetwork
from factormer_lab.train.anyrank import sweeps
from factormer_lab.train.anyrank.config import BASES, AnyRankTraining
from factormer_lab.train.anyrank.course import AnyRankCourse, plan
from factormer_lab.train.anyrank.evaluate import iterations
from factormer_lab.train.anyrank.export import make_card
from factormer_lab.train.anyrank.learner import Learner, Work
from factormer_lab.train.anyrank.pool import make_pool
from factormer_lab.train.loop import train
from factormer_lab.train.weights import untrained
from lab.tests.train.cases import assert_same_weights

CONFIG = AnyRankTraining(
    name="tiny", model=AnyRankConfig(width=6, messages=2), n_buckets=4, per_kind=1, max_rank=3,
    max_size=14, n_reference=16, n_steps=6, lanes=2, batch=5, n_iter=4, truncate=2, horizon=2,
    lr=3e-3, warmup=2, ema=0.5, seed=3,
)  # fmt: skip
QUICK = {"shapes": ((8, 7, 2),), "per_kind": 1, "n_iter": 10}
trained = partial(train, partial(AnyRankCourse, evaluation=QUICK))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The run that others are compared with."""
    return trained(CONFIG, tmp_path_factory.mktemp("whole"))


def test_run_stopped_after_every_round_gives_the_same_weights(uninterrupted, tmp_path):
    steps = []
    while not (run := trained(CONFIG, tmp_path, max_seconds=0.0)).finished:
        steps.append(run.step)
    assert steps == [2, 4]
    assert_same_weights(run.model, uninterrupted.model)


def test_run_leaves_the_global_generator_alone(tmp_path):
    before = torch.get_rng_state()
    trained(replace(CONFIG, n_steps=2), tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


def test_warm_start_begins_from_the_weights_given(tmp_path):
    model = random_any_rank(width=6, messages=2).float()
    config = replace(CONFIG, n_steps=2, lr=0.0)
    run = trained(config, tmp_path, warm_start=model)
    for key, weight in run.model.state_dict().items():
        torch.testing.assert_close(weight, model.state_dict()[key])


@pytest.mark.parametrize("base", ["hals", "newton+mu"])
def test_training_over_other_bases_runs(base, tmp_path):
    run = trained(replace(CONFIG, base=base, n_steps=2), tmp_path)
    assert run.finished
    assert set(run.figures) >= (set(base.split("+")) if "+" in base else {"by rank"})
    assert all(p.isfinite().all() for p in run.model.parameters())


def test_updates_lower_the_loss():
    pool = make_pool(CONFIG, torch.device("cpu"))
    network = untrained(partial(AnyRankNetwork, CONFIG.model), CONFIG.seed)
    learner, works = Learner(network, CONFIG, pool), [Work(2, 0, 0), Work(1, 0, 0)]
    losses = [learner.step(works, 1e-2).loss.item() for _ in range(25)]
    assert min(losses) < losses[0] - 0.005


def test_card_says_what_the_run_was(uninterrupted):
    card = make_card(CONFIG, uninterrupted, device="cpu")
    assert (card.name, card.use, card.ranks) == ("tiny", "accelerator", "any rank")
    assert card.training["steps"] == 6
    assert card.training["options"]["lr"] == 3e-3
    assert "by rank" in card.figures


def test_round_follows_batches_of_the_lanes_own_buckets():
    config = replace(CONFIG, horizon=6, n_reference=24)
    for number in range(20):
        rounds = plan(config, number, [2, 2, 2, 2])
        assert len(rounds) == 6
        for lane in range(2):
            works = [works[lane] for works in rounds]
            assert all(work.bucket % 2 == lane for work in works)
            assert works[0].age == 0
            for a, b in pairwise(works):
                assert b.age in (0, a.age + 1)
                assert b.age == 0 or (a.bucket, a.batch) == (b.bucket, b.batch)


def test_iterations_are_counted_to_the_best_of_all():
    errors = {"a": torch.tensor([[3.0], [1.0], [1.0]]), "b": torch.tensor([[2.0], [2.0], [1.005]])}
    assert {k: v.tolist() for k, v in iterations(errors, 0.01, 1e-3).items()} == {
        "a": [2.0],
        "b": [3.0],
    }
    assert iterations(errors, 0.001, 1e-4)["b"].tolist() == [6.0]  # never: twice all there were


@pytest.mark.parametrize(
    "changes",
    [
        {"base": "x"},
        {"kind": "x"},
        {"min_rank": 9},
        {"n_before": -1},
        {"n_reference": 7},
        {"truncate": 3},
        {"lanes": 3},
        {"batch": 0},
    ],
)
def test_wrong_config_is_refused_with_a_sentence(changes):
    with pytest.raises(ValueError, match=r" is .*; (it must|choose|lanes)"):
        replace(CONFIG, **changes)


def test_batch_larger_than_a_bucket_is_refused(tmp_path):
    with pytest.raises(ValueError, match="batch is 11; it must be at most 10"):
        trained(replace(CONFIG, batch=11), tmp_path)


@pytest.mark.parametrize("base", BASES)
def test_update_looks_at_no_number(base, monkeypatch):
    """So that a GPU can record it: tensors without numbers, as here, would stop a look at one."""
    monkeypatch.setattr(sweeps, "_on", lambda H: sweeps)  # compiled loops do look
    pool = make_pool(replace(CONFIG, base=base, n_buckets=2), torch.device("cpu"))
    learner = Learner(AnyRankNetwork(CONFIG.model), CONFIG, pool)
    state = learner.step([Work(0, 0, 0), Work(1, 0, 0)], 0.0) and learner.lanes[0].state
    entry, some = pool[0], slice(0, CONFIG.batch)
    learner.weights = list(learner.model.to("meta").parameters())
    parts = entry.reference[: CONFIG.n_iter, some], entry.best[some]
    reference, best = (part.to("meta") for part in parts)
    problem = entry.bucket.of(entry.bucket.V[some].to("meta"))
    state = map_tensors(lambda tensor: tensor.to("meta"), state)
    result = learner._gradients(problem, state, reference, best, entry.solver)
    assert [g.shape for g in result.gradients] == [w.shape for w in learner.weights]
