"""Spectra: norms, blocks held out and balanced noise, each beside a literal computation."""

import numpy as np
import pytest
import torch

from factormer.data import Dense, Sparse
from factormer.select.ranks import spectrum as rank_spectrum
from factormer.select.ranks import view as rank_view
from factormer.select.ranks.noise import noise_of
from factormer.select.ranks.spectrum import found_again, held_out, leftovers, norm, spectrum
from factormer.select.ranks.view import balanced, view_of


def planted(m, n, rank, noise, rng, level=0.1):
    W, H = (torch.from_numpy(rng.gamma(0.5, size=(s, rank))) for s in (m, n))
    clean = (W @ H.T).numpy() + 1e-3
    clean /= clean.mean()
    if noise == "counts":
        return torch.from_numpy(rng.poisson(clean / level).astype(float))
    size = level if noise == "same" else level * clean
    return torch.from_numpy(np.maximum(clean + size * rng.normal(size=clean.shape), 0))


@pytest.fixture
def numbers():
    return np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(30, 20), (20, 30), (5, 4)])
def test_norm_is_the_largest_singular_value(shape, rng):
    A = torch.randn(3, *shape, generator=rng)
    torch.testing.assert_close(norm(A, rng), torch.linalg.svdvals(A)[:, 0], rtol=0.02, atol=0)


@pytest.mark.parametrize("shape", [(30, 20), (20, 30)])
def test_singular_vectors_from_the_gram_matrix_are_those_of_the_matrix(shape, rng, monkeypatch):
    X = torch.rand(*shape, generator=rng, dtype=torch.float64)
    U, S, Z = rank_spectrum.decomposed(X, 5)
    monkeypatch.setattr(rank_spectrum, "_SMALL", 10)
    P, T, Q = rank_spectrum.decomposed(X, 5)
    torch.testing.assert_close(T, S)
    torch.testing.assert_close(rank_spectrum.singular_values(X), S)
    torch.testing.assert_close((P * T[:5]) @ Q.mT, (U[:, :5] * S[:5]) @ Z[:, :5].mT)


def test_leftovers_are_what_the_svd_leaves(rng):
    X = torch.rand(8, 6, generator=rng, dtype=torch.float64)
    U, S, Z = rank_spectrum.decomposed(X, 6)
    left = leftovers(X, U, S, Z, 4)
    for k in range(4):
        torch.testing.assert_close(left[k], X - (U[:, :k] * S[:k]) @ Z[:, :k].mT)


def test_blocks_are_predicted_by_the_pseudo_inverse_of_the_rest(rng, monkeypatch):
    monkeypatch.setattr(rank_spectrum, "_SPLITS", 1)
    X = torch.rand(12, 9, generator=rng, dtype=torch.float64)
    found = held_out(X, 4, torch.Generator().manual_seed(5))
    draw = torch.Generator().manual_seed(5)
    rows, columns = torch.randperm(12, generator=draw), torch.randperm(9, generator=draw)
    A, B, C, D = (X[i][:, j] for i in (rows[:4], rows[4:]) for j in (columns[:3], columns[3:]))
    U, S, Z = rank_spectrum.decomposed(D, 6)
    expected = []
    for k in range(4):
        cut = (U[:, :k] * S[:k]) @ Z[:, :k].mT
        guess = B @ torch.linalg.pinv(cut) @ C if k else torch.zeros_like(A)
        expected.append((A - guess).square().sum() / A.square().sum())
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-6, atol=1e-9)


def test_components_of_the_data_are_found_again_and_noise_is_not(numbers, rng):
    again = found_again(planted(80, 60, 3, "same", numbers), 8, rng)
    assert (again[:3] > 0.3).all()
    assert (again[4:] < 0.3).all()


@pytest.mark.parametrize("power", [1, 2])
def test_balanced_noise_has_variance_one_in_rows_and_columns(power, numbers, rng):
    view = view_of(Dense(0.1 + planted(30, 20, 2, "same", numbers)), rng)
    X, Y = view.block, balanced(view, power).block
    variance = (Y / X).square() * X**power  # Y / X is √u √v
    torch.testing.assert_close(variance.mean(0), torch.ones(20).double(), rtol=1e-3, atol=0)
    torch.testing.assert_close(variance.mean(1), torch.ones(30).double(), rtol=1e-3, atol=0)


def test_balanced_counts_have_noise_of_the_variance_that_their_unit_says(numbers, rng):
    V = torch.from_numpy(numbers.poisson(20.0, size=(60, 50)).astype(float))
    view = balanced(view_of(Dense(V), rng), 1)
    assert float(view.block.var() * view.unit) == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize(("noise", "power"), [("same", 0), ("counts", 1), ("in proportion", 2)])
def test_noise_is_recognised(noise, power, numbers, rng):
    view = view_of(Dense(planted(90, 70, 3, noise, numbers)), rng)
    assert noise_of(view, spectrum(balanced(view, 1), 9, rng)).power == power


def test_singular_values_stand_out_from_noise_up_to_the_rank(numbers, rng):
    view = view_of(Dense(planted(70, 60, 4, "same", numbers)), rng)
    s = spectrum(view, 9, rng)
    over = s.values / s.noise
    torch.testing.assert_close(s.values, torch.linalg.svdvals(view.block)[:9])
    assert (over[1:4] > 1.2).all()
    assert (over[4:] < 1.15).all()


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_large_matrix_has_nearly_the_spectrum_of_its_sketch(kind, numbers, rng, monkeypatch):
    X = planted(120, 90, 3, "counts", numbers, level=0.5)
    whole = spectrum(balanced(view_of(Dense(X), rng), 1), 6, rng)
    monkeypatch.setattr(rank_view, "LARGE", 100)
    monkeypatch.setattr(rank_view, "_BLOCK", 60)
    data = Dense(X) if kind == "dense" else sparse(X)
    view = balanced(view_of(data, rng), 1)
    assert not view.is_small
    seen = spectrum(view, 6, rng)
    torch.testing.assert_close(seen.values, whole.values, rtol=0.05, atol=0)
    torch.testing.assert_close(seen.tail, whole.tail, rtol=0.05, atol=0)
    torch.testing.assert_close(seen.noise[3:], whole.noise[3:], rtol=0.2, atol=0)


def sparse(X):
    import scipy.sparse

    return Sparse.of(scipy.sparse.csr_array(X.numpy()))
