"""Training of the Factormer for every rank: it learns, resumes exactly, and tells what it did."""

from functools import partial

import torch

from factormer.nn.anyfactormer import AnyFactormerConfig
from factormer_lab.train.anyfactormer import course
from factormer_lab.train.anyfactormer.config import AnyFactormerTraining
from factormer_lab.train.anyfactormer.course import AnyFactormerCourse
from factormer_lab.train.anyfactormer.export import make_card
from factormer_lab.train.loop import train

SMALL = AnyFactormerTraining(
    name="small",
    model=AnyFactormerConfig(width=4, n_layers=3),
    n_buckets=2,
    per_kind=1,
    max_rank=3,
    max_size=20,
    n_reference=4,
    n_steps=6,
    batch=4,
    warmup=2,
)

trained = partial(train, partial(AnyFactormerCourse, per_kind=1))


def test_marks_end_at_the_last_layer():
    assert SMALL.marks == (1, 3)


def test_a_stopped_run_continues_to_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(course, "_SHAPES", ((12, 10, 2),))
    whole = trained(SMALL, tmp_path / "whole")
    part = trained(SMALL, tmp_path / "parts", max_seconds=0.0)
    assert not part.finished
    done = trained(SMALL, tmp_path / "parts")
    assert (done.step, done.finished) == (6, True)
    for a, b in zip(whole.model.parameters(), done.model.parameters(), strict=True):
        assert torch.equal(a, b)
    card = make_card(SMALL, done, device="cpu")
    assert card.use == "init"
    assert card.ranks == "any rank"
    assert "synthetic matrices" in str(card)
