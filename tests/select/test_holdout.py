"""What is hidden is not seen, rows and columns stay known, and errors are those of the loss."""

import numpy as np
import pytest
import scipy.sparse
import torch

from factormer import factorize
from factormer.data.factors import Factors
from factormer.data.observations import observe
from factormer.problem.losses import Beta
from factormer.select.holdout import Speckled


@pytest.mark.parametrize("seed", range(20))
def test_every_row_and_column_stays_known(seed):
    rng = np.random.default_rng(seed)
    known = rng.random((rng.integers(3, 12), rng.integers(3, 12))) < 0.7
    known[0] = True
    speckled = Speckled.of(observe(np.where(known, 0.5, np.nan)), 3, seed)
    assert (speckled.part >= 0).any()
    for part in range(3):
        left = speckled.without(part).known.numpy()
        for axis in (0, 1):
            assert (left.any(axis=axis) == known.any(axis=axis)).all()


def test_parts_are_disjoint_of_equal_size_and_cover_all():
    speckled = Speckled.of(observe(np.random.default_rng(0).random((40, 30))), 5, 0)
    assert torch.bincount(speckled.part).tolist() == pytest.approx([240] * 5, abs=12)
    hidden = torch.stack([~speckled.without(k).known for k in range(5)]).sum(dim=0)
    assert (hidden == 1).all()


def test_hidden_entries_do_not_change_the_fit():
    V = np.random.default_rng(0).gamma(1.0, size=(20, 12))
    first = Speckled.of(observe(V), 4, 3)
    at = first.part == 1
    changed = V.copy()
    changed[first.rows[at], first.columns[at]] = 7.0
    second = Speckled.of(observe(changed), 4, 3)
    for loss in (2.0, 1.0):
        one, two = (
            factorize(s.without(1), 3, loss=loss, max_iter=10, tol=0) for s in (first, second)
        )
        torch.testing.assert_close(one.factors.H, two.factors.H)


@pytest.mark.parametrize("kind", ["dense", "sparse", "ratings"])
def test_error_is_the_mean_loss_of_hidden_entries(kind):
    rng = np.random.default_rng(1)
    V = rng.poisson(1.5, size=(15, 10)).astype(float)
    matrix = {
        "dense": lambda: observe(V),
        "sparse": lambda: observe(scipy.sparse.csr_array(V)),
        "ratings": lambda: observe(scipy.sparse.csr_array(V), missing="zeros"),
    }[kind]()
    speckled = Speckled.of(matrix, 3, 0)
    x = Factors(torch.rand(15, 2, dtype=torch.float64), torch.rand(10, 2, dtype=torch.float64))
    at = speckled.part == 2
    i, j = speckled.rows[at].numpy(), speckled.columns[at].numpy()
    y = (x.W @ x.H.T).numpy()[i, j]
    np.testing.assert_array_equal(speckled.values[at].numpy(), V[i, j])
    assert speckled.error(2, x, Beta(2.0)) == pytest.approx(np.mean((V[i, j] - y) ** 2) / 2)
    left = speckled.without(2)
    assert float(left.count()) == len(speckled.rows) - len(i)
    if kind == "ratings":
        assert (V[i, j] > 0).all()


def test_a_zero_that_was_predicted_costs_a_finite_loss():
    V = np.random.default_rng(0).poisson(2.0, size=(12, 8)).astype(float)
    zero = Factors(torch.zeros(12, 1).double(), torch.zeros(8, 1).double())
    speckled = Speckled.of(observe(V), 4, 0)
    assert speckled.error(0, zero, Beta(1.0)) < 50
    assert np.isfinite(Speckled.of(observe(V + 0.1), 4, 0).error(0, zero, Beta(0.0)))


def test_the_only_count_of_a_row_costs_a_moderate_loss():
    V = np.eye(6)  # whichever entry is hidden, its row and column have no other
    zero = Factors(torch.zeros(6, 1).double(), torch.zeros(6, 1).double())
    speckled = Speckled.of(observe(V), 4, 0)
    assert max(speckled.error(part, zero, Beta(1.0)) for part in range(4)) < 5


def test_weights_weigh_the_error():
    rng = np.random.default_rng(0)
    V, weights = rng.random((12, 8)), rng.choice([0.5, 3.0], size=(12, 8))
    speckled = Speckled.of(observe(V, weights=weights), 4, 0)
    x = Factors(torch.zeros(12, 1).double(), torch.zeros(8, 1).double())
    at = speckled.part == 0
    i, j = speckled.rows[at].numpy(), speckled.columns[at].numpy()
    expected = np.average(V[i, j] ** 2 / 2, weights=weights[i, j])
    assert speckled.error(0, x, Beta(2.0)) == pytest.approx(expected)


def test_too_few_entries_are_refused():
    with pytest.raises(ValueError, match="none can be hidden"):
        Speckled.of(observe(np.ones((1, 9))), 3, 0)
    assert (Speckled.of(observe(np.ones((1, 9))), 3, 0, by_rows=True).part >= 0).all()
