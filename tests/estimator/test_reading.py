"""Unknown entries, weights and other losses through the estimator; fit and transform agree."""

import warnings
from typing import Any

import numpy as np
import pandas
import pytest
import scipy.optimize
import scipy.sparse
import torch

from factormer import NMF, MiniBatchNMF, factorize
from factormer.penalties import Bounds, Group, Orthogonal, Simplex, Smooth

draw = np.random.default_rng(0)
TRUE = draw.exponential(size=(40, 3)) @ draw.exponential(size=(3, 20))
X = TRUE + 0.05 * draw.random((40, 20))
MASK = draw.random(X.shape) > 0.3
HOLES = np.where(MASK, X, np.nan)
KL = "kullback-leibler"


def converged(**options: Any) -> NMF:
    return NMF(3, **{"random_state": 0, "max_iter": 300, "tol": 1e-3, **options})


def weighted_coefficients(V: np.ndarray, omega: np.ndarray, H: np.ndarray) -> np.ndarray:
    """Row by row, by scipy."""
    rows = []
    for v, w in zip(V, np.sqrt(omega), strict=True):
        rows.append(scipy.optimize.nnls(w[:, None] * H.T, w * v)[0])
    return np.stack(rows)


def test_nan_is_unknown_only_where_that_is_said():
    with pytest.raises(ValueError, match="NaN"):
        converged().fit(HOLES)
    model = converged(missing="nan").fit(HOLES)
    predicted = model.inverse_transform(model.transform(HOLES))
    assert np.linalg.norm((predicted - X)[~MASK]) < 0.05 * np.linalg.norm(X[~MASK])


def test_nan_and_a_mask_say_the_same():
    by_nan = converged(missing="nan").fit(HOLES)
    by_mask = converged()
    W = by_mask.fit_transform(X, mask=MASK)
    np.testing.assert_allclose(by_mask.components_, by_nan.components_)
    also = converged().fit_transform(HOLES, mask=MASK)  # NaN where the mask says unknown
    np.testing.assert_allclose(also, W)


def test_transform_of_masked_rows_is_weighted_least_squares():
    omega = MASK * draw.uniform(0.2, 2, size=X.shape)
    model = converged()
    W = model.fit_transform(X, weights=omega)
    expected = weighted_coefficients(X, omega, model.components_)
    np.testing.assert_allclose(model.transform(X, weights=omega), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(W, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["rows", "sigma", "sigma-rows", "tensor"])
def test_weights_come_in_several_forms(kind):
    rows = draw.uniform(0.5, 2, size=40)
    whole = np.repeat(rows[:, None], 20, axis=1)
    given: dict[str, Any] = {
        "rows": {"weights": rows},
        "sigma": {"sigma": whole**-0.5},
        "sigma-rows": {"sigma": rows**-0.5},
        "tensor": {"sigma": torch.from_numpy(whole**-0.5)},
    }[kind]
    expected = converged().fit_transform(X, weights=whole)
    np.testing.assert_allclose(converged().fit_transform(X, **given), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_masked_tensors_are_tensors_out(dtype):
    V, known = torch.from_numpy(X).to(dtype), torch.from_numpy(MASK)
    model = converged(beta_loss=KL)
    W = model.fit_transform(V, mask=known)
    assert (W.dtype, model.components_.dtype) == (dtype, dtype)
    torch.testing.assert_close(model.transform(V, mask=known), W, atol=1e-3, rtol=1e-3)


def test_sparse_sigma_are_weights_of_what_is_stored():
    at = scipy.sparse.csr_array(MASK.astype(float))
    sigma = at * 0.5
    one = converged().fit_transform(scipy.sparse.csr_array(X * MASK), sigma=sigma)
    other = converged().fit_transform(scipy.sparse.csr_array(X * MASK), weights=at * 4)
    np.testing.assert_allclose(one, other)


def test_zeros_of_ratings_are_unknown():
    ratings = X * MASK
    dense, sparse = (converged(missing="zeros").fit(V) for V in (ratings, _csr(ratings)))
    for model, V in ((dense, ratings), (sparse, _csr(ratings))):  # their starts differ
        predicted = model.inverse_transform(model.transform(V))
        assert np.linalg.norm((predicted - X)[~MASK]) < 0.05 * np.linalg.norm(X[~MASK])
    np.testing.assert_allclose(
        sparse.transform(_csr(ratings)),
        weighted_coefficients(X, MASK, sparse.components_),
        rtol=1e-5,
        atol=1e-6,
    )


def _csr(V: np.ndarray) -> Any:
    return scipy.sparse.csr_array(V)


CASES: list[dict[str, Any]] = [
    {"beta_loss": KL},
    {"beta_loss": 1.5, "alpha_W": 1e-3, "l1_ratio": 0.5},
    {"beta_loss": KL, "missing": "nan"},
    {"regularize_W": Simplex()},
    {"regularize_W": [Bounds(0.0, 1.5)], "regularize_H": [Smooth(0.1)]},
    {"regularize_H": [Orthogonal(0.01), Group(0.01)]},
]


@pytest.mark.parametrize("options", CASES, ids=str)
def test_fit_and_transform_agree(options):
    """To 1e-4 of the largest coefficient, where the problem of W is convex."""
    V = HOLES if "missing" in options else X
    model = converged(**options)
    W = model.fit_transform(V)
    np.testing.assert_allclose(model.transform(V), W, atol=1e-4 * W.max())
    np.testing.assert_allclose(model.transform(V[:7]), W[:7], atol=1e-4 * W.max())


def test_transform_under_a_divergence_is_its_minimum():
    """Against a general optimiser, row by row."""
    model = converged(beta_loss=KL).fit(X)
    H, new = model.components_, X[:3] * draw.uniform(0.5, 2, size=(3, 20))

    def loss(w: np.ndarray, v: np.ndarray) -> float:
        y = w @ H
        return float((v * np.log(v / y) - v + y).sum())

    for v, w in zip(new, model.transform(new), strict=True):
        found = scipy.optimize.minimize(loss, np.ones(3), (v,), bounds=[(1e-9, None)] * 3)
        assert loss(w, v) <= found.fun * (1 + 1e-6)


@pytest.mark.parametrize("loss", [KL, 1.5])
def test_error_is_that_of_scikit_learn(loss):
    from sklearn.decomposition._nmf import _beta_divergence

    model = converged(beta_loss=loss, alpha_W=1e-3)
    W = model.fit_transform(X)
    expected = _beta_divergence(X, W, model.components_, loss, square_root=True)
    assert model.reconstruction_err_ == pytest.approx(expected, rel=1e-6)


def test_symmetric_data_have_one_factor():
    S = TRUE @ TRUE.T
    model = converged(symmetric=True, max_iter=300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        W = model.fit_transform(S)
    np.testing.assert_allclose(W, model.components_.T, rtol=1e-10)
    assert np.linalg.norm(S - W @ W.T) < 0.05 * np.linalg.norm(S)


def test_abundances_sum_to_one_for_new_rows_too():
    model = converged(regularize_W=Simplex())
    np.testing.assert_allclose(model.fit_transform(X).sum(axis=1), 1)
    np.testing.assert_allclose(model.transform(X[:5]).sum(axis=1), 1)


def test_estimator_with_a_loss_is_the_engine():
    est = NMF(3, beta_loss=KL, max_iter=20, tol=0, random_state=0, order=None, scale=None)
    W, result = (
        est.fit_transform(X),
        factorize(X, 3, loss=KL, max_iter=20, tol=0.0, order=None, scale=None),
    )
    np.testing.assert_array_equal(W, result.W)
    np.testing.assert_array_equal(est.components_, result.H.T)


def test_known_components_go_with_a_loss_and_unknown_entries():
    parts = draw.exponential(size=(1, 20))
    model = converged(beta_loss=KL, missing="nan", fixed_components=parts)
    W = model.fit_transform(HOLES)
    np.testing.assert_array_equal(model.components_[:1], parts)
    np.testing.assert_allclose(model.transform(HOLES), W, atol=1e-4 * W.max())
    frozen = converged(beta_loss=KL, fixed_components=model.components_)
    np.testing.assert_allclose(frozen.fit_transform(X), model.transform(X), atol=1e-6)


def test_warm_start_goes_with_a_loss():
    model = converged(beta_loss=KL, warm_start=True).fit(X)
    before = model.trace_.loss[-1]
    assert model.fit(X).trace_.loss[0] <= before * (1 + 1e-6)


@pytest.mark.parametrize(
    ("options", "told", "sentence"),
    [
        ({}, {"mask": MASK[:9]}, r"mask has shape \(9, 20\); it must have that of V, \(40, 20\)"),
        ({}, {"weights": -X}, "weights has .* entries that are negative, NaN or infinite"),
        ({}, {"sigma": 0 * X}, "sigma has entries that are not above 0"),
        ({}, {"sigma": X, "weights": X}, "weights and sigma say the same thing; give one"),
        ({}, {"mask": 0 * X}, "no entry of V is known"),
        ({"missing": "zero"}, {}, "missing is 'zero'; choose one of None, 'nan', 'zeros'"),
        ({"beta_loss": 0, "missing": "nan"}, {"X": 0 * X}, "has 800 zeros, at which it is inf"),
        ({}, {"X": HOLES, "weights": MASK + 1.0}, "NaN where mask and weights call it known"),
        ({"beta_loss": KL, "solver": "hals"}, {}, "'hals', which serves only the squared error"),
        (
            {"beta_loss": KL, "solver": "her"},
            {},
            "solver is 'her', which serves only the plain squared error",
        ),
        ({"regularize_W": "l1"}, {}, "regularize_W holds 'l1'; it must be of factormer.penalties"),
        ({"beta_loss": KL, "accelerator": "accel-r10"}, {}, "serves only the plain squared error"),
        ({"symmetric": True}, {}, "symmetric=True needs a square V"),
        ({"alpha_W": 1, "regularize_W": Simplex(), "l1_ratio": 1}, {}, "Simplex goes with L2"),
        ({}, {"X": _csr(X), "weights": X}, "V is sparse and weights is dense"),
        ({"beta_loss": KL}, {"X": _csr(X), "weights": X[:, 0]}, "V is sparse and weights is one"),
    ],
)
def test_wrong_use_is_refused_with_a_sentence(options, told, sentence):
    told = {"X": X} | told
    with pytest.raises(ValueError, match=sentence):
        converged(**options).fit(**told)


@pytest.mark.parametrize(
    "options", [{"beta_loss": KL}, {"missing": "nan"}, {"regularize_W": Simplex()}]
)
def test_stream_of_what_it_cannot_learn_is_refused(options):
    with pytest.raises(ValueError, match="partial_fit takes only the squared error"):
        NMF(3, **options).partial_fit(X)


@pytest.mark.parametrize("kind", [np.array, pandas.DataFrame, list])
def test_text_is_refused_with_the_text_in_the_sentence(kind):
    words = kind([["1", "high"], ["2", "low"]])
    with pytest.raises(ValueError, match="X holds the text 'high'; its entries must be numbers"):
        NMF(1).fit(words)


def test_rows_of_unequal_length_are_not_taken_for_text():
    with pytest.raises(ValueError, match="inhomogeneous"):
        NMF(1).fit([[1.0, 2.0], [3.0]])


def test_coefficients_that_a_penalty_forbids_are_small_from_the_start():
    """Else the gradient of the penalty is what falls, and ends the iterations far too early."""
    tiny = 1e-27 * (0.1 + np.random.default_rng(0).random((3, 14)))
    model = NMF(2, beta_loss=1.5, alpha_W=0.1, random_state=0).fit(tiny)
    W = model.transform(tiny)
    penalty = 1.4 * (W**2).sum() / 2
    assert penalty < (tiny**1.5).sum()


def test_stream_of_batches_whose_squares_are_beyond_float64_is_refused():
    huge = 1e160 * np.random.default_rng(0).random((8, 3))
    model = NMF(2, scale="sum", random_state=0).fit(huge)
    with pytest.raises(ValueError, match="squares of its coefficients are beyond float64: divide"):
        model.partial_fit(huge)


@pytest.mark.parametrize("kind", ["pandas", "nullable", "polars", "lazy"])
def test_missing_values_of_a_table_are_named_with_the_option_for_them(kind):
    library: Any = pytest.importorskip("pandas" if kind in ("pandas", "nullable") else "polars")
    X = np.random.default_rng(0).random((12, 5))
    X[2, 3] = np.nan
    table = library.DataFrame(
        X, [f"g{k}" for k in range(5)] if kind in ("polars", "lazy") else None
    )
    table = table.convert_dtypes() if kind == "nullable" else table
    table = table.fill_nan(None) if kind in ("polars", "lazy") else table
    table = table.lazy() if kind == "lazy" else table
    for model in (NMF(2, max_iter=3), MiniBatchNMF(2, max_iter=3)):
        with pytest.raises(ValueError, match=r"1 entries are missing.*NMF\(missing='nan'\)"):
            model.fit(table)
    assert NMF(2, max_iter=3, missing="nan").fit_transform(table).shape == (12, 2)
    expected = factorize(X, 2, max_iter=3)
    np.testing.assert_array_equal(factorize(table, 2, max_iter=3).W, expected.W)
