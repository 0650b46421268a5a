import numpy as np
import pytest
from scipy.integrate import trapezoid

from factormer_lab.paper.reproduce.density import entry_density


@pytest.mark.parametrize("rank", [5, 10, 30])
def test_mass_mean_and_variance_are_those_of_the_sum(rank: int):
    v = np.linspace(0, 25, 501)
    f = entry_density(v, rank)
    assert trapezoid(f, v) == pytest.approx(1, abs=1e-4)
    assert trapezoid(v * f, v) == pytest.approx(1, abs=1e-4)
    assert trapezoid((v - 1) ** 2 * f, v) == pytest.approx(3 / rank, rel=1e-3)


def test_density_is_that_of_drawn_matrices():
    rng, n = np.random.default_rng(0), 300_000
    W, H = rng.exponential(10**-0.5, (2, n, 10))
    edges = np.linspace(0, 4, 41)
    counts, _ = np.histogram((W * H).sum(axis=1), edges)
    fine = np.linspace(0, 4, 201)
    f = entry_density(fine)
    expected = np.array(
        [trapezoid(f[5 * k : 5 * k + 6], fine[5 * k : 5 * k + 6]) for k in range(40)]
    )
    np.testing.assert_allclose(counts / n, expected, atol=5 * np.sqrt(expected.max() / n))


def test_too_small_a_rank_is_told():
    with pytest.raises(ValueError, match="rank is 2"):
        entry_density(np.ones(1), 2)
