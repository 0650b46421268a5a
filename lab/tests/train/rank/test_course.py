"""Training of the network that chooses the rank: resumed runs, planted problems, calibration."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from factormer.nn.rank import RankConfig, RankNetwork
from factormer.nn.zoo import load_rank, read_card, save_model
from factormer.select.ranks.curves import N_FEATURES
from factormer_lab.train.rank import data
from factormer_lab.train.rank.calibrate import calibration_error, temperature_of, threshold_of
from factormer_lab.train.rank.config import RankTraining
from factormer_lab.train.rank.course import batch_of, train_rank
from factormer_lab.train.rank.export import make_card
from factormer_lab.train.rank.planted import (
    FACTORS,
    NOISES,
    SMALL,
    WIDE,
    drawn_factors,
    noisy,
    planted,
)
from lab.tests.train.cases import assert_same_weights

CONFIG = RankTraining(
    name="tiny", model=RankConfig(width=8, n_heads=2, n_layers=1), n_shards=1, n_held_out=1,
    wide=1, n_steps=4, batch=4, warmup=2, ema=0.5,
)  # fmt: skip


@pytest.fixture
def small(monkeypatch):
    """Shards of few, small problems."""
    monkeypatch.setattr(data, "SHARD", 4)
    tiny = {"sides": (20, 30), "ranks": (1, 4)}
    monkeypatch.setattr(data, "SMALL", SMALL._replace(**tiny))
    monkeypatch.setattr(data, "WIDE", WIDE._replace(**tiny))
    monkeypatch.setattr(data, "_TOPS", {"small": 6, "wide": 8})


def test_a_run_stopped_after_every_step_gives_the_same_weights(small, tmp_path):
    whole = train_rank(CONFIG, tmp_path / "whole")
    steps = []
    while not (run := train_rank(CONFIG, tmp_path / "parts", max_seconds=0.0)).finished:
        steps.append(run.step)
    assert steps == [1, 2, 3]
    assert_same_weights(run.model, whole.model)
    assert run.figures["ranks 1–12"]["problems"] == 3
    path = tmp_path / "tiny.safetensors"
    save_model(run.model, make_card(CONFIG, run, device="cpu"), path)
    assert read_card(path).use == "model"
    assert_same_weights(load_rank(path), run.model)


def test_damaged_curves_are_refused_with_a_sentence(small, tmp_path):
    (tmp_path / "curves").mkdir()
    (tmp_path / "curves" / "curves-0000.npz").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="remove it to make them again"):
        train_rank(CONFIG, tmp_path)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n_held_out": 0}, "n_held_out is 0; it must be at least 1"),
        ({"wide": 101}, "wide is 101"),
        ({"batch": 0}, "batch is 0"),
        ({"kind": "any-rank"}, "it must be 'rank'"),
    ],
)
def test_impossible_options_are_refused_with_a_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        replace(CONFIG, **options)


def test_batches_have_the_planted_rank_inside(small):
    shards = data.make_shard(0, 1)
    for step in range(6):
        batch = batch_of(shards, CONFIG, step)
        assert batch.features.shape[2] == N_FEATURES
        assert batch.real.any(1).all()
        torch.testing.assert_close(batch.labels.sum(1), torch.ones(len(batch.labels)))
        assert (batch.labels[~batch.real] == 0).all()  # set, not computed


def test_planted_problems_are_of_every_kind_and_follow_from_their_seeds():
    drawn = [planted(SMALL, seed) for seed in range(120)]
    assert {p.noise for p in drawn} == set(NOISES)
    assert {p.factors for p in drawn} == set(FACTORS)
    assert {p.rank for p in drawn} == set(range(1, 13))
    for p in drawn:
        assert np.isfinite(p.V).all()
        assert (p.V >= 0).all()
        assert p.V.any()
        assert p.clean.mean() == pytest.approx(1)
    again = planted(SMALL, 7)
    np.testing.assert_array_equal(again.V, drawn[7].V)


def test_parts_have_a_lower_linear_rank_than_their_number():
    rng = np.random.default_rng(0)
    W, H, kind = drawn_factors("parts", 200, 90, 8, rng)
    V, _ = noisy(W @ H.T, "exact", rng)
    assert kind == "parts"
    assert np.linalg.matrix_rank(V, tol=1e-6 * V.max()) < 8


def test_temperature_and_threshold_make_probabilities_honest():
    rng = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(4000, 5, generator=rng)
    target = torch.multinomial(torch.softmax(logits, 1), 1, generator=rng)[:, 0]
    assert temperature_of(3 * logits, target) == pytest.approx(3, rel=0.1)
    p = torch.softmax(logits, 1)
    best, at = p.max(1)
    clear = best >= threshold_of(p, target)
    assert (at == target)[clear].double().mean() >= 0.95
    assert calibration_error(best, (at == target).double()) < 0.03


def test_padding_changes_nothing(rng):
    model = RankNetwork(RankConfig(width=8, n_heads=2, n_layers=2)).eval()
    features = torch.randn(1, 7, 58, generator=rng)
    longer = torch.cat([features, torch.randn(1, 4, 58, generator=rng)], 1)
    real = torch.arange(11)[None] < 7
    with torch.no_grad():
        alone, padded = model(features, torch.ones(1, 7, dtype=torch.bool)), model(longer, real)
    torch.testing.assert_close(padded[:, :7], alone, rtol=1e-4, atol=1e-5)
    assert torch.isneginf(padded[:, 7:]).all()
