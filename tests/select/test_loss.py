"""select_loss: planted noise is recognised, whatever the unit; what cannot be told is said."""

import numpy as np
import pytest
import scipy.sparse

from factormer import factorize, select_loss
from factormer.select.noise import Levels, law_of, levels_of


def mean_of(m: int = 60, n: int = 40, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    mean = rng.gamma(0.7, size=(m, 3)) @ rng.gamma(0.7, size=(3, n))
    return mean / mean.mean()


def noisy(kind: str) -> np.ndarray:
    rng, mean = np.random.default_rng(1), mean_of()
    if kind == "gaussian":
        return np.maximum(mean + 0.2 * rng.normal(size=mean.shape), 0)
    if kind == "poisson":
        return rng.poisson(10 * mean).astype(float)
    if kind == "overdispersed":
        return rng.poisson(rng.gamma(3.0, 10 * mean / 3.0)).astype(float)
    return mean * rng.gamma(5.0, 0.2, size=mean.shape)


LOSSES = {
    "gaussian": "frobenius",
    "poisson": "kullback-leibler",
    "overdispersed": 0.5,
    "multiplicative": "itakura-saito",
}


@pytest.mark.parametrize("kind", LOSSES)
def test_planted_noise_is_recognised_in_any_unit(kind):
    V = noisy(kind)
    found = select_loss(V)
    assert (found.kind, found.loss, found.clear) == (kind, LOSSES[kind], True)
    assert f"power {found.power:.2f}" in found.reason
    if kind == "multiplicative":
        assert select_loss(1e-180 * V).power == pytest.approx(found.power, abs=1e-6)
    factorize(V, 2, loss=found.loss, max_iter=2)  # which takes it


def test_zeros_forbid_itakura_saito():
    V = noisy("multiplicative")
    V[3, 4] = 0
    assert select_loss(V).loss == 0.5


def test_sparse_data_gaps_and_large_data(monkeypatch):
    V = noisy("poisson")
    whole = select_loss(V)
    gaps = np.where(np.random.default_rng(0).random(V.shape) < 0.1, np.nan, V)
    monkeypatch.setattr("factormer.select.part._ENTRIES", 1500)
    monkeypatch.setattr("factormer.select.part._COLUMNS", 30)
    for A in (scipy.sparse.csr_array(V), gaps):
        part = select_loss(A)
        assert part.kind == "poisson"
        assert len(part.mean) < len(whole.mean)


@pytest.mark.parametrize(
    ("V", "sentence"),
    [
        (np.zeros((9, 8)), "no entry above 0"),
        (np.ones((30, 20)), "all entries of V are about the same"),
        (np.eye(5), "known entries"),
        (np.ones((1, 300)), "no row and column"),
        (scipy.sparse.csr_array(np.eye(60)), "few entries above 0"),
    ],
)
def test_what_cannot_be_told_is_the_default(V, sentence):
    found = select_loss(V)
    assert (found.loss, found.clear) == ("frobenius", False)
    assert sentence in found.reason
    found.plot(pytest.importorskip("matplotlib.figure").Figure().subplots())


def test_stacks_and_short_times_are_refused():
    with pytest.raises(ValueError, match="one matrix"):
        select_loss(np.ones((2, 3, 4)))
    with pytest.raises(TimeoutError, match="allow more time"):
        select_loss(noisy("poisson"), time_limit=1e-9)


def test_picture_and_summary():
    found = select_loss(noisy("gaussian"))
    ax = found.plot(pytest.importorskip("matplotlib.figure").Figure().subplots())
    assert "frobenius" in ax.get_title()
    assert found.summary()["mean"] == found.mean.tolist()
    assert "frobenius" in repr(found)


def test_law_is_found_among_outliers():
    x = np.exp(np.linspace(-2, 3, 25))
    variance = 0.3 * x**1.4
    variance[[3, 17]] *= 50
    law = law_of(Levels(x, variance))
    assert law.power == pytest.approx(1.4, abs=0.02)
    assert law.factor == pytest.approx(0.3, rel=0.05)


def test_levels_are_unbiased():
    rng = np.random.default_rng(0)
    y = rng.gamma(1.0, size=20_000)
    levels = levels_of(rng.poisson(y).astype(float), y)
    np.testing.assert_allclose(levels.variance, levels.mean, rtol=0.4)
    np.testing.assert_allclose(levels.variance / levels.mean, 1, atol=0.4)
