"""The training and validation matrices are those that the paper describes."""

import pytest
import torch
from torch import Tensor

from factormer.data import Dense
from factormer.problem.problem import Problem
from factormer.starts import NNDSVD, Rotated
from factormer_lab.train import synthetic
from factormer_lab.train.synthetic import (
    TRAINING,
    VALIDATION,
    SizeClass,
    Stack,
    sample,
    stack,
    training_set,
    validation_set,
)

SMALL = SizeClass(40, (3, 6), (5, 9))


def dense(stack: Stack) -> tuple[Tensor, Tensor, Tensor]:
    """Entries and masks of a stack."""
    V = stack.problem.V
    assert isinstance(V, Dense)
    assert V.rows is not None
    assert V.cols is not None
    return V.entries, V.rows, V.cols


def test_classes_are_those_of_the_papers_table():
    table = [(c.count, *c.rows, *c.cols) for c in TRAINING]
    assert table == [
        (10_000, 10, 35, 10, 35),
        (2_000, 30, 70, 30, 70),
        (1_500, 30, 100, 10, 35),
        (1_500, 10, 35, 30, 100),
    ]
    assert sum(count for count, *_ in table) == 15_000
    assert VALIDATION["small"] == SizeClass(128, (15, 35), (15, 35))
    assert VALIDATION["large"] == SizeClass(128, (50, 200), (50, 200))


@pytest.mark.parametrize("copies", [1, 3])
def test_training_set_has_each_class_as_often_as_asked(copies, monkeypatch):
    fewer = [SizeClass(c.count // 500, c.rows, c.cols) for c in TRAINING]
    monkeypatch.setattr(synthetic, "TRAINING", fewer)
    stacks = training_set(4, 0.01, copies, seed=0)
    assert [len(s) for s in stacks] == [20 * copies, 4 * copies, 3 * copies, 3 * copies]
    for drawn, c in zip(stacks, TRAINING, strict=True):
        assert drawn.problem.V.shape[1:] == (c.rows[1], c.cols[1])
        assert drawn.problem.rank == 4
        _, rows, cols = dense(drawn)
        for mask, (low, high) in ((rows, c.rows), (cols, c.cols)):
            assert low <= mask.sum(-1).min()
            assert mask.sum(-1).max() <= high


def test_sizes_reach_both_ends_of_their_range(rng):
    V = sample(SizeClass(300, (3, 6), (5, 9)), 2, 0.01, rng)
    assert V.rows is not None
    assert V.cols is not None
    assert set(V.rows.sum(-1).tolist()) == {3, 4, 5, 6}
    assert set(V.cols.sum(-1).tolist()) == {5, 6, 7, 8, 9}


@pytest.mark.parametrize("rank", [1, 4, 10, 30])
def test_entries_have_mean_one_at_every_rank(rank, rng):
    """λ = 1/√r is the mean of the factors; as a rate it would give entries of mean r²."""
    V = sample(SizeClass(300, (20, 20), (20, 20)), rank, 0.01, rng)
    assert V.entries.mean().item() == pytest.approx(1, abs=0.05)


def test_factors_are_exponential():
    """Of rank one, log V is the sum of two independent logs of exponentials: variance 2·π²/6."""
    V = sample(SizeClass(200, (20, 20), (20, 20)), 1, 0.0, torch.Generator().manual_seed(1))
    assert V.entries.log().var().item() == pytest.approx(2 * torch.pi**2 / 6, rel=0.1)


def test_noise_is_added_and_clipped_at_zero(rng):
    clean = sample(SMALL, 3, 0.0, torch.Generator().manual_seed(0))
    noisy = sample(SMALL, 3, 0.5, torch.Generator().manual_seed(0))
    assert noisy.rows is not None
    assert noisy.cols is not None
    real = noisy.rows[:, :, None] & noisy.cols[:, None, :]
    assert (noisy.entries >= 0).all()
    assert (noisy.entries[real] == 0).any()
    above = real & (noisy.entries > 0)
    assert (noisy.entries - clean.entries)[above].std().item() == pytest.approx(0.5, rel=0.2)


def test_padding_is_zero_and_follows_the_real_entries(rng):
    drawn = stack(SMALL, 3, 0.01, seed=0)
    entries, rows, cols = dense(drawn)
    assert not entries[~rows].any()
    assert not entries.mT[~cols].any()
    assert not drawn.x0.W[~rows].any()
    assert not drawn.x0.H[~cols].any()
    for mask in (rows, cols):
        assert torch.equal(mask, mask.sort(dim=-1, descending=True).values)


def test_starts_are_nndsvd():
    drawn = stack(SMALL, 3, 0.01, seed=0)
    entries, rows, cols = dense(drawn)
    for k in range(3):
        m, n = int(rows[k].sum()), int(cols[k].sum())
        alone = NNDSVD()(Problem(Dense(entries[k, :m, :n]), 3), torch.Generator())
        torch.testing.assert_close(drawn.x0.W[k, :m], alone.W, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(drawn.x0.H[k, :n], alone.H, rtol=1e-3, atol=1e-4)


def test_same_seed_gives_the_same_matrices_and_another_gives_others(monkeypatch):
    monkeypatch.setattr(synthetic, "_PIECE", 7)  # several pieces, on several threads
    a, b, c = (stack(SMALL, 3, 0.01, seed=seed) for seed in (5, 5, 6))
    for ours, theirs in zip((*dense(a), *a.x0), (*dense(b), *b.x0), strict=True):
        assert torch.equal(ours, theirs)
    assert not torch.equal(dense(a)[0], dense(c)[0])


def test_classes_and_pieces_share_no_matrix(monkeypatch):
    monkeypatch.setattr(synthetic, "_PIECE", 2)
    monkeypatch.setattr(synthetic, "TRAINING", [SizeClass(6, (3, 3), (3, 3))] * 2)
    drawn = torch.cat([dense(s)[0] for s in training_set(2, 0.01, 1, seed=0)])
    assert len(drawn.flatten(1).unique(dim=0)) == 12


def test_neighbouring_seeds_share_no_matrix(monkeypatch):
    monkeypatch.setattr(synthetic, "_PIECE", 2)
    size = SizeClass(6, (3, 3), (3, 3))
    drawn = torch.cat([dense(stack(size, 2, 0.01, seed=seed))[0] for seed in (0, 1)])
    assert len(drawn.flatten(1).unique(dim=0)) == 12


def test_selection_keeps_the_problems_and_crops_their_padding():
    drawn, index = stack(SMALL, 3, 0.01, seed=0), torch.tensor([4, 1, 30])
    entries, rows, cols = dense(drawn)
    whole, cropped = drawn.select(index, crop=False), drawn.select(index, crop=True)
    assert len(whole) == len(cropped) == 3
    assert torch.equal(dense(whole)[0], entries[index])
    m, n = rows[index].sum(-1).max(), cols[index].sum(-1).max()
    assert cropped.problem.V.shape == (3, m, n)
    assert torch.equal(dense(cropped)[0], entries[index, :m, :n])
    losses = (s.problem.rmse(s.x0) for s in (whole, cropped))
    torch.testing.assert_close(next(losses), next(losses))


def test_moved_stack_is_in_the_precision_asked_for():
    moved = stack(SMALL, 3, 0.01, seed=0).to("cpu", torch.float64)
    assert moved.problem.V.dtype == torch.float64
    assert moved.x0.W.dtype == torch.float64
    assert dense(moved)[1].dtype == torch.bool


def test_small_validation_set_is_fixed_and_free_of_noise():
    a, b = validation_set("small"), validation_set("small")
    entries, rows, cols = dense(a)
    assert torch.equal(entries, dense(b)[0])
    assert len(a) == 128
    assert entries.dtype == torch.float64
    assert (rows.sum(-1).min() >= 15) & (cols.sum(-1).min() >= 15)
    singular = torch.linalg.svdvals(entries)
    assert (singular[:, 10] < 1e-5 * singular[:, 0]).all()  # of rank 10: it was drawn in float32
    assert entries.sum() / a.problem.V.shape[0] / (rows.sum(-1) * cols.sum(-1)).double().mean() == (
        pytest.approx(1, abs=0.05)
    )


def test_validation_sets_differ_in_size_and_contents(monkeypatch):
    fewer = {name: SizeClass(3, c.rows, c.cols) for name, c in VALIDATION.items()}
    monkeypatch.setattr(synthetic, "VALIDATION", fewer)
    small, large = validation_set("small", 4), validation_set("large", 4)
    assert small.problem.V.shape == (3, 35, 35)
    assert large.problem.V.shape == (3, 200, 200)
    assert dense(large)[1].sum(-1).min() >= 50
    assert small.problem.V.shape[0] == len(small)


@pytest.mark.parametrize("name", ["small", "large"])
def test_rotated_start_is_better_than_nndsvd_on_the_papers_matrices(name, rng):
    problem, x0 = validation_set(name)
    x = Rotated()(problem, rng)
    assert problem.rmse(x).mean() < 0.5 * problem.rmse(x0).mean()
    assert (problem.rmse(x) < problem.rmse(x0)).double().mean() > 0.95
