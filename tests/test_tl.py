"""Functions on AnnData, here on something that has its parts."""

from copy import deepcopy
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from factormer import factorize, select_rank, tl


class Cells(SimpleNamespace):
    """What the functions use of AnnData."""

    def copy(self):
        return deepcopy(self)


@pytest.fixture
def adata():
    random = np.random.default_rng(0)
    V = random.gamma(1.0, size=(30, 3)) @ random.gamma(0.3, size=(3, 12))
    genes = [f"g{k}" for k in range(12)]
    var = pd.DataFrame({"highly_variable": [k % 3 > 0 for k in range(12)]}, index=genes)
    X = scipy.sparse.csr_matrix(V)
    layers = {"counts": np.floor(5 * V)}
    return Cells(X=X, layers=layers, var=var, obsm={}, varm={}, uns={})


def test_fit_writes_what_factorize_returns(adata):
    assert tl.fit(adata, 3) is None
    expected = factorize(adata.X, 3, random_state=0)
    np.testing.assert_array_equal(adata.obsm["X_nmf"], expected.W)
    np.testing.assert_array_equal(adata.varm["nmf"], expected.H)
    about = adata.uns["nmf"]
    assert about["params"]["rank"] == 3
    assert about["params"]["layer"] == "X"
    assert about["shares"].sum() == pytest.approx(1)


def test_layer_mask_and_copy(adata):
    other = tl.fit(
        adata, 2, layer="counts", mask="highly_variable", key_added="km", copy=True, loss="kl"
    )
    assert not adata.uns
    kept = np.array(adata.var["highly_variable"])
    assert not other.varm["km"][~kept].any()
    expected = factorize(adata.layers["counts"][:, kept], 2, loss="kl", random_state=0)
    np.testing.assert_array_equal(other.varm["km"][kept], expected.H)
    assert other.uns["km"]["params"]["mask"] == "highly_variable"


def test_markers_set_components_apart(adata):
    H = np.zeros((12, 3))
    H[:, :] = 1.0
    H[0, 0] = H[5, 1] = H[7, 2] = 20.0
    H[1] = 30.0  # much of it everywhere
    adata.varm["nmf"], adata.uns["nmf"] = H, {}
    found = tl.markers(adata, 2)
    assert [found[f"component {c}"][0] for c in (1, 2, 3)] == ["g0", "g5", "g7"]
    assert adata.uns["nmf"]["markers"]["names"].shape == (2, 3)
    assert all("g1" not in names for names in found.values())


def test_names_of_genes_are_those_of_anndata_or_counted(adata):
    adata.varm["nmf"], adata.uns["nmf"] = np.eye(12)[:, :2], {}
    adata.var_names = [f"n{k}" for k in range(12)]
    assert tl.markers(adata, 1) == {"component 1": ["n0"], "component 2": ["n1"]}
    del adata.var_names, adata.var, adata.layers
    assert tl.markers(adata, 1) == {"component 1": ["gene 1"], "component 2": ["gene 2"]}
    tl.fit(adata, 2, mask=np.arange(12) < 9, max_iter=5)
    assert not adata.varm["nmf"][9:].any()
    with pytest.raises(ValueError, match=r"adata\.var has no column 'none'; it has \[\]"):
        tl.fit(adata, 2, mask="none")
    with pytest.raises(ValueError, match=r"adata has no layer 'none'; it has \[\]"):
        tl.fit(adata, 2, layer="none")


def test_specificity_is_the_literal_one():
    H = np.random.default_rng(1).uniform(0.1, 1, (5, 3))
    p = H / H.sum(axis=0)
    expected = np.zeros((5, 3))
    for g in range(5):
        for c in range(3):
            q = max(p[g, k] for k in range(3) if k != c)
            expected[g, c] = p[g, c] * np.log(p[g, c] / q) if p[g, c] > q else 0
    np.testing.assert_allclose(tl.specificity(H), expected)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"layer": "none"}, "adata has no layer 'none'; it has"),
        ({"mask": "none"}, "adata.var has no column 'none'; it has"),
        ({"mask": np.ones(3, bool)}, "mask has shape"),
        ({"mask": np.zeros(12, bool)}, "mask leaves no gene"),
    ],
)
def test_what_is_not_there_gets_a_sentence(adata, wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        tl.fit(adata, 2, **wrong)
    with pytest.raises(ValueError, match=r"run factormer\.tl\.fit first"):
        tl.markers(adata)


def test_a_rank_is_chosen_under_what_is_fitted(adata, monkeypatch):
    asked = []

    def seen(V, **options):
        asked.append((V, options))
        return select_rank(V, **options)

    monkeypatch.setattr(tl, "select_rank", seen)
    weights = np.ones((30, 12))
    weights[3, 4] = 0
    options = {"loss": "kullback-leibler", "weights": weights, "max_iter": 5}
    tl.fit(adata, "select", layer="counts", mask="highly_variable", **options)
    kept = np.array(adata.var["highly_variable"])
    ((V, given),) = asked
    np.testing.assert_array_equal(V, adata.layers["counts"][:, kept])
    assert given["loss"] == "kullback-leibler"
    np.testing.assert_array_equal(given["weights"], weights[:, kept])
    expected = select_rank(V, loss="kullback-leibler", weights=weights[:, kept], random_state=0)
    assert adata.uns["nmf"]["params"]["rank"] == expected.rank
    assert adata.uns["nmf"]["reason"] == expected.reason


def test_a_rank_is_not_chosen_as_if_weights_were_not_there(adata):
    weights = np.random.default_rng(0).uniform(1, 2, (30, 12))
    with pytest.raises(ValueError, match="a rank is chosen for entries that count the same"):
        tl.fit(adata, "select", layer="counts", weights=weights)
