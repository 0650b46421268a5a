"""metaprograms: planted programs are found, counted, and placed in the samples that have them."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import factormer
from factormer import metaprograms, tl
from factormer.select.match import units

GENES = 60
HAS = np.array([[1, 1, 1, 0, 0], [1, 1, 0, 1, 0], [1, 1, 1, 0, 0], [1, 1, 0, 0, 1]], bool)


@pytest.fixture(scope="module")
def programs():
    """Two programs of all samples, one of two, and one each of two samples alone."""
    rng = np.random.default_rng(0)
    P = 0.05 * rng.gamma(0.5, size=(5, GENES))
    for c in range(5):
        P[c, rng.permutation(GENES)[:12]] += rng.gamma(2.0, size=12)
    return P


@pytest.fixture(scope="module")
def samples(programs):
    rng = np.random.default_rng(1)
    return [
        rng.poisson(20 * rng.gamma(0.4, size=(80 + 10 * s, has.sum())) @ programs[has]).astype(
            float
        )
        for s, has in enumerate(HAS)
    ]


@pytest.fixture(scope="module")
def found(samples):
    return metaprograms(samples, ranks=range(2, 6), n_runs=6)


def test_planted_programs_are_counted_and_placed(found, programs):
    shared = programs[:3]
    assert found.H.shape == (GENES, 3)
    assert found.clear
    assert len(found.alone) == 2
    assert {name for name, _ in found.alone} == {"sample 2", "sample 4"}
    cosines = units(shared.T).T @ found.H
    place = cosines.argmax(axis=1)
    assert sorted(place) == [0, 1, 2]
    assert cosines.max(axis=1).min() > 0.95
    np.testing.assert_array_equal(np.isfinite(found.cosines[place]), HAS[:, :3].T)
    assert [p.rank for p in found.programs] == HAS.sum(axis=1).tolist()
    assert found.score.min() > 0.8
    assert "3 meta-programs in 4 samples, and 2 programs of fewer samples" in found.reason


def test_genes_table_and_usage_say_what_they_are(found, samples, programs):
    genes = found.genes(5)
    assert list(genes) == ["meta-program 1", "meta-program 2", "meta-program 3"]
    strongest = {f"feature {j + 1}" for j in found.H[:, 0].argsort()[-12:]}
    assert set(genes["meta-program 1"]) <= strongest
    assert list(found.table()["samples"]) == [4, 4, 2]
    W = found.usage(samples[0])
    assert W.shape == (80, 3)
    error = np.linalg.norm(samples[0] - W @ found.H.T) / np.linalg.norm(samples[0])
    assert error < 0.3
    assert found.plot().get_xlabel() == ""


def test_one_matrix_with_groups_frames_and_sparse_samples_give_the_same(found, samples):
    groups = np.repeat(["a", "b", "c", "d"], [len(X) for X in samples])
    genes = [f"g{j}" for j in range(GENES)]
    whole = pd.DataFrame(np.concatenate(samples), columns=genes)
    other = metaprograms(whole, groups, ranks=range(2, 6), n_runs=6)
    np.testing.assert_array_equal(other.H, found.H)
    assert other.samples == ["a", "b", "c", "d"]
    assert other.features == genes
    sparse = metaprograms(list(map(scipy.sparse.csr_matrix, samples)), ranks=range(2, 6), n_runs=6)
    assert sparse.H.shape == found.H.shape
    assert (sparse.H * found.H).sum(axis=0).min() > 0.99


def test_nothing_shared_is_said():
    rng = np.random.default_rng(3)
    P = np.eye(4).repeat(10, axis=1) + 0.01
    samples = [10 * rng.gamma(0.4, size=(60, 2)) @ P[2 * s : 2 * s + 2] for s in range(2)]
    found = metaprograms(samples, ranks=[2], n_runs=4)
    assert found.H.shape == (40, 0)
    assert len(found.alone) == 4
    assert found.reason.startswith("0 meta-programs in 2 samples, and 4 programs")
    assert not len(found.table())


@pytest.mark.parametrize(
    ("V", "groups", "options", "words"),
    [
        ([np.ones((20, 5))], None, {}, "list of two samples or more"),
        (np.ones((20, 5)), ["a"] * 20, {}, "it must name two or more"),
        (np.ones((20, 5)), ["a"] * 3, {}, "sample of each of the 20 rows"),
        ([np.ones((20, 5)), np.ones((20, 4))], None, {}, "sample 2 has 4 columns"),
        ([np.ones((20, 5)), np.ones((4, 5))], None, {}, "'sample 2' has 4 rows"),
        ([np.ones((20, 5)), np.ones((20, 5))], None, {"ranks": [9]}, "pass lower ranks"),
        ([np.ones((20, 5)), np.ones((20, 5))], None, {"n_runs": 1}, "n_runs"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(V, groups, options, words):
    with pytest.raises(ValueError, match=words):
        metaprograms(V, groups, **options)


def test_keywords_that_it_cannot_share_are_refused(samples):
    with pytest.raises(TypeError, match="metaprograms has no keyword 'n_init'"):
        metaprograms(samples, n_init=3)
    with pytest.raises(TypeError, match="loss"):
        metaprograms(samples, beta_loss="kullback-leibler")


def test_frames_with_other_columns_are_refused(samples):
    frames = [pd.DataFrame(X) for X in samples[:2]]
    frames[1].columns = frames[1].columns[::-1]
    with pytest.raises(ValueError, match="other columns than sample 1"):
        metaprograms(frames)


def test_a_time_limit_keeps_the_replicates_that_are_done(samples):
    with pytest.raises(TimeoutError, match="replicates were done"):
        metaprograms(samples, ranks=[2, 3], time_limit=1e-9)


def test_tl_writes_them_beside_the_data(samples, found):
    X = scipy.sparse.csr_matrix(np.concatenate(samples))
    X = scipy.sparse.hstack([X, np.ones((X.shape[0], 2))]).tocsr()
    obs = pd.DataFrame({"donor": np.repeat(list("abcd"), [len(V) for V in samples])})
    names = [f"g{j}" for j in range(GENES)] + ["x", "y"]
    var = pd.DataFrame({"telling": np.arange(GENES + 2) < GENES}, index=names)
    adata = SimpleNamespace(X=X, obs=obs, var=var, obsm={}, varm={}, uns={})
    assert tl.metaprograms(adata, "donor", mask="telling", ranks=range(2, 6), n_runs=6) is None
    H = adata.varm["metaprograms"]
    assert H.shape == (GENES + 2, 3)
    assert not H[-2:].any()
    assert adata.obsm["X_metaprograms"].shape == (len(obs), 3)
    told = adata.uns["metaprograms"]
    assert told["genes"].shape == (50, 3)
    assert told["samples"].tolist() == list("abcd")
    assert told["reason"].startswith("3 meta-programs in 4 samples")
    with pytest.raises(ValueError, match="no column 'batch'"):
        tl.metaprograms(adata, "batch")


def test_public_names():
    assert factormer.MetaPrograms.__module__ == "factormer.select.metaprograms"
