"""Generated data are what they claim: nonnegative, made of their factors, the same for a seed."""

import numpy as np
import pytest
import scipy.sparse

import factormer
from factormer.datasets import make_documents, make_mutations, make_scene, make_swimmers

MAKERS = {
    "swimmers": make_swimmers,
    "scene": lambda: make_scene(20, 30),
    "documents": lambda: make_documents(60),
    "mutations": lambda: make_mutations(40),
}


def dense(V) -> np.ndarray:
    return V.toarray() if scipy.sparse.issparse(V) else V


@pytest.fixture(params=MAKERS, scope="module")
def example(request):
    return MAKERS[request.param]()


def test_shapes_and_names_fit_together(example):
    (m, n), r = example.V.shape, len(example.components)
    assert example.W.shape == (m, r)
    assert example.H.shape == (n, r)
    assert (len(example.rows), len(example.columns)) == (m, n)
    for names in (example.rows, example.columns, example.components):
        assert len(set(names.tolist())) == len(names)


def test_v_is_the_product_but_for_noise(example):
    V, truth = dense(example.V), example.W @ example.H.T
    assert min(V.min(), example.W.min(), example.H.min()) >= 0
    assert np.linalg.norm(V - truth) < 0.75 * np.linalg.norm(truth)
    assert abs(V.sum() / truth.sum() - 1) < 0.05


@pytest.mark.parametrize("make", [make_documents, make_mutations])
def test_a_seed_decides(make):
    V, again, other = (dense(make(15, random_state=seed).V) for seed in (3, 3, 4))
    np.testing.assert_array_equal(V, again)
    assert not np.array_equal(V, other)


def test_counts_are_counts_and_shares_are_shares():
    for make in (make_documents, make_mutations):
        V = dense(make(15).V)
        np.testing.assert_array_equal(V, V.round())
    np.testing.assert_allclose(make_scene(12, 10).W.sum(axis=1), 1)


def test_swimmers_are_all_poses_once():
    swimmers = make_swimmers()
    assert len(np.unique(swimmers.V, axis=0)) == 256
    np.testing.assert_array_equal(swimmers.W.sum(axis=1), 5)
    np.testing.assert_allclose(factormer.factorize(swimmers.V, 17).rmse, 0, atol=0.05)


@pytest.mark.parametrize(
    "make", [lambda: make_scene(5), lambda: make_documents(0), lambda: make_mutations(-1)]
)
def test_wrong_sizes_are_refused(make):
    with pytest.raises(ValueError, match="must be 1"):
        make()
