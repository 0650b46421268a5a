"""Order and scale of components: what they are, and that they change nothing else."""

from pathlib import Path

import numpy as np
import pytest
import torch

from factormer import NMF, factorize, factorize_many
from factormer.app.cli import main
from factormer.data.factors import Factors
from factormer.run.order import canonical, lengths, shares


@pytest.fixture
def x(rng: torch.Generator) -> Factors:
    W, H = (torch.rand(n, 4, dtype=torch.float64, generator=rng) for n in (9, 7))
    return Factors(W * torch.tensor([1.0, 9.0, 0.0, 3.0]), H)


@pytest.mark.parametrize("scale", ["balanced", "sum", None])
@pytest.mark.parametrize("order", ["share", None])
def test_product_stays(x, order, scale):
    W, H = canonical(x, order, scale)
    torch.testing.assert_close(W @ H.mT, x.W @ x.H.mT)


def test_largest_share_comes_first(x):
    W, H = canonical(x, "share", None)
    assert bool((np.diff(shares(Factors(W, H))) <= 0).all())
    assert torch.equal(canonical(x, None, None).W, x.W)


def test_components_are_balanced_or_sum_to_one(x):
    W, H = canonical(x, "share", "balanced")
    torch.testing.assert_close(W.norm(dim=0)[:3], H.norm(dim=0)[:3])
    torch.testing.assert_close(
        canonical(x, None, "sum").H.sum(dim=0), torch.ones(4, dtype=torch.float64)
    )


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1.0, 1e200])
def test_lengths_of_numbers_of_any_size(size):
    F = size * torch.tensor([[3.0, 0.0], [4.0, 0.0]], dtype=torch.float64)
    np.testing.assert_allclose(lengths(F) / size, [5.0, 0.0])


@pytest.mark.parametrize("c", [1e-150, 1e-3, 1e150])
def test_shares_are_those_of_the_sum_of_all_entries_in_any_unit(x, c):
    parts = torch.stack([torch.outer(w, h).sum() for w, h in zip(x.W.mT, x.H.mT, strict=True)])
    np.testing.assert_allclose(shares(Factors(c * x.W, c * x.H)), parts / parts.sum())


def test_shares_of_nothing_are_zero():
    assert shares(Factors(torch.zeros(3, 2), torch.zeros(4, 2))).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("scale", ["balanced", "sum", None])
def test_a_stack_is_ordered_member_by_member(x, scale):
    other = Factors(x.W.flip(1), 2 * x.H.flip(1))
    both = canonical(
        Factors(*(torch.stack(pair) for pair in zip(x, other, strict=True))), "share", scale
    )
    for k, member in enumerate((x, other)):
        for F, alone in zip(both, canonical(member, "share", scale), strict=True):
            torch.testing.assert_close(F[k], alone)


def apart() -> np.ndarray:
    """A part with the larger sum, and in few entries one with the larger norm."""
    V = np.full((60, 50), 0.1)
    V[:3, :3] += 3.0
    return V


def by_command_line(V: np.ndarray, folder: Path) -> np.ndarray:
    np.save(folder / "V.npy", V)
    assert main(["fit", str(folder / "V.npy"), "--rank", "2", "--out", str(folder / "run")]) == 0
    return np.load(folder / "run" / "rank-2" / "factors.npz")["W"]


@pytest.mark.parametrize(
    "fitted",
    [
        lambda V, _: factorize(V, 2).W,
        lambda V, _: factorize(V, 2, loss="kullback-leibler").W,
        lambda V, _: NMF(2).fit_transform(V),
        lambda V, _: factorize_many([V, V], 2)[1].W,
        lambda V, _: factorize_many(V, 2, n_init=2)[1].W,
        by_command_line,
    ],
    ids=["factorize", "counts", "NMF", "many", "replicates", "command line"],
)
def test_order_is_by_share_of_the_sum_for_every_caller(fitted, tmp_path):
    W = fitted(apart(), tmp_path)
    assert np.count_nonzero(W[:, 0] > 1e-3 * W[:, 0].max()) > 50
    assert np.count_nonzero(W[:, 1] > 0.2 * W[:, 1].max()) == 3
