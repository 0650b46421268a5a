"""MiniBatchNMF leads where NMF does, a batch at a time, and keeps scikit-learn's contract."""

import dataclasses
import inspect
import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import sklearn.decomposition
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from factormer import NMF, MiniBatchNMF
from factormer.data.factors import Factors
from factormer.data.intake import as_matrix
from factormer.estimator import learning
from factormer.estimator.batches import Batches
from factormer.estimator.learning import Learner, visited
from factormer.estimator.options import Asked
from factormer.problem.losses import as_loss
from factormer.problem.problem import Problem
from factormer.run.result import Status
from factormer.solvers.multiplicative import update
from factormer.solvers.online import Majorizer

M, N, R, SIZE = 300, 24, 3, 50


def entries() -> np.ndarray:
    rng = np.random.default_rng(0)
    W = rng.exponential(size=(M, R)) * (rng.random((M, R)) > 0.4)
    H = rng.exponential(size=(R, N)) * (rng.random((R, N)) > 0.4)
    return W @ H + 0.1 * rng.random((M, N))


X = entries()
COUNTS = np.random.default_rng(1).poisson(4 * X).astype(float)


def model(**options: Any) -> MiniBatchNMF:
    given: Any = {"batch_size": SIZE, "random_state": 0} | options
    return MiniBatchNMF(R, **given)


def error(est: Any, data: np.ndarray) -> float:
    return float(np.linalg.norm(data - est.inverse_transform(est.transform(data))))


@pytest.mark.parametrize(("forget_factor", "excess"), [(1.0, 1e-3), (0.7, 1e-3)])
def test_fit_converges_to_the_batch_solution(forget_factor, excess):
    best = NMF(R, random_state=0, tol=1e-6, max_iter=1000).fit(X).reconstruction_err_
    est = model(forget_factor=forget_factor, tol=1e-6, max_no_improvement=None, max_iter=60)
    with pytest.warns(ConvergenceWarning, match="Maximum number of iterations 60"):
        est.fit(X)
    assert est.reconstruction_err_ <= (1 + excess) * best
    assert (est.n_iter_, est.n_steps_) == (60, 60 * M // SIZE)


def test_kullback_leibler_converges_to_the_batch_solution():
    options: Any = {"beta_loss": "kullback-leibler", "random_state": 0}
    best = NMF(R, tol=1e-6, max_iter=1000, **options).fit(COUNTS).reconstruction_err_
    est = model(beta_loss="kullback-leibler", max_no_improvement=None, tol=0, max_iter=12)
    est.fit(COUNTS)
    assert est.reconstruction_err_ <= 1.005 * best


@pytest.mark.parametrize("beta_loss", ["frobenius", "kullback-leibler"])
def test_a_stream_leads_near_the_batch_solution(beta_loss):
    """One visit of each batch, in a stream."""
    data = X if beta_loss == "frobenius" else COUNTS
    est = MiniBatchNMF(R, beta_loss=beta_loss, forget_factor=1.0, random_state=0)
    for k in range(0, M, SIZE):
        assert est.partial_fit(data[k : k + SIZE]) is est
    best = NMF(R, beta_loss=beta_loss, random_state=0).fit(data)
    assert error(est, data) <= 1.02 * error(best, data)
    assert est.n_steps_ == M // SIZE


def test_without_forgetting_each_batch_lowers_the_squared_error_of_all():
    V = as_matrix(X)
    learner = Learner(as_loss("frobenius"), Asked.read(model()), False, 30)
    batches = Batches(V, SIZE)
    state = learner.fitted(batches.sample(np.random.default_rng(0)), R, "random", 0)
    W, problem, errors = torch.zeros(M, R, dtype=torch.float64), Problem(V, R), []
    for visit in range(4):
        for rows, part in batches:
            replaced = (W[rows].clone(), 1.0) if visit else None
            state, W[rows], _ = learner.step(state, part, 1.0, warm=W[rows], replaced=replaced)
            errors.append(float(problem.sq_error(Factors(W, state.H))))
    after = errors[M // SIZE - 1 :]  # from then on all rows count
    assert all(b <= a * (1 + 1e-12) for a, b in pairwise(after))


@pytest.mark.parametrize("beta", [-1.0, 0.0, 0.5, 1.0, 1.5, 3.0])
def test_the_majorizer_of_one_batch_is_a_multiplicative_update(beta, rng):
    V = as_matrix(np.random.default_rng(0).random((9, 6)) + 0.1)
    x = Factors(*(torch.rand(size, 2, generator=rng).double() + 0.1 for size in (9, 6)))
    problem = Problem(V, 2, as_loss(beta))
    past = Majorizer.empty(x.H).after(problem, x, 0.5)
    found = past.update(x.H, problem.on_h, problem.loss.exponent)
    torch.testing.assert_close(found, update(problem, x))


def test_the_kullback_leibler_bound_is_the_sum_of_those_of_batches():
    """The literal twin: A and B entry by entry, over two batches that met other components."""
    rng = np.random.default_rng(0)
    batches = [(rng.random((4, 5)), rng.random((4, 2)), rng.random((5, 2))) for _ in range(2)]
    loss, past = as_loss("kullback-leibler"), Majorizer.empty(torch.zeros(5, 2).double())
    A, B = np.zeros((5, 2)), np.zeros((5, 2))
    for V, W, H in batches:
        x = Factors(torch.from_numpy(W), torch.from_numpy(H))
        past = past.after(Problem(as_matrix(V), 2, loss), x, 0.7)
        A, B = 0.7 * A, 0.7 * B
        for j in range(5):
            for c in range(2):
                for i in range(4):
                    A[j, c] += H[j, c] * W[i, c] * V[i, j] / sum(W[i, k] * H[j, k] for k in (0, 1))
                    B[j, c] += W[i, c]
    np.testing.assert_allclose(past.A, A)
    np.testing.assert_allclose(past.B, B)
    assert past.n_rows == pytest.approx(0.7 * 4 + 4)


@pytest.mark.parametrize("beta_loss", ["frobenius", "kullback-leibler"])
def test_sparse_batches_are_dense_ones(beta_loss):
    data = COUNTS * (COUNTS > 4)
    options: Any = {"beta_loss": beta_loss, "max_iter": 3, "tol": 0}
    dense, sparse = model(**options).fit(data), model(**options).fit(scipy.sparse.csc_array(data))
    near = dense.components_.max() * 1e-2  # the first fit may end some iterations earlier
    np.testing.assert_allclose(sparse.components_, dense.components_, atol=near)
    np.testing.assert_allclose(sparse.reconstruction_err_, dense.reconstruction_err_, rtol=1e-3)
    for est, kind in ((dense, np.asarray), (sparse, scipy.sparse.csr_matrix)):
        est.partial_fit(kind(data[:20]))
    np.testing.assert_allclose(sparse.components_, dense.components_, atol=near)


def test_a_file_is_read_a_batch_at_a_time_and_gives_the_same(tmp_path):
    np.save(tmp_path / "X.npy", X)
    stored = np.load(tmp_path / "X.npy", mmap_mode="r")
    options: Any = {"init": "custom", "max_iter": 2, "tol": 0}
    H = np.random.default_rng(0).random((R, N))
    inside, outside = model(**options).fit(X, H=H), model(**options).fit(stored, H=H)
    np.testing.assert_allclose(outside.components_, inside.components_, rtol=1e-9)
    np.testing.assert_allclose(outside.transform(stored), inside.transform(X), atol=1e-9)
    bad = X.copy()
    bad[130, 2] = -1
    np.save(tmp_path / "bad.npy", bad)
    with pytest.raises(ValueError, match=r"below zero .* \(in rows 100 to 149\)"):
        model().fit(np.load(tmp_path / "bad.npy", mmap_mode="r"))


@pytest.mark.parametrize(
    ("beta_loss", "dtype", "fresh"),
    [(2, np.float32, False), (2, np.float64, True), (1, np.float64, False), (1, np.float64, True),
     (0, np.float64, False)],
)  # fmt: skip
def test_factors_are_feasible_and_in_the_precision_of_the_data(beta_loss, dtype, fresh):
    data = (COUNTS + 1).astype(dtype)
    est = model(beta_loss=beta_loss, fresh_restarts=fresh, max_iter=2, tol=0, alpha_W=1e-3)
    W = est.fit_transform(data)
    for F in (W, est.components_):
        assert F.dtype == dtype
        assert np.isfinite(F).all()
        assert (F >= 0).all()
    np.testing.assert_allclose(est.transform(data), W, rtol=1e-5, atol=1e-6)
    assert est.reconstruction_err_ < np.linalg.norm(data)


@pytest.mark.parametrize("beta_loss", ["frobenius", "kullback-leibler"])
@pytest.mark.parametrize("kinds", [(np.float32, np.float64), (np.float64, np.float32)])
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_a_stream_keeps_the_precision_of_its_first_batch(beta_loss, kinds, form):
    mixed, same = (MiniBatchNMF(R, beta_loss=beta_loss, random_state=0) for _ in range(2))
    for est, types in ((mixed, kinds), (same, kinds[:1] * 2)):
        for k, kind in enumerate(types):
            est.partial_fit(form(COUNTS[100 * k : 100 * k + 100].astype(kind)))
    assert mixed.components_.dtype == kinds[0]
    near = 1e-3 * same.components_.max()
    np.testing.assert_allclose(mixed.components_, same.components_, atol=near)


def test_penalties_shrink():
    plain, sparse = (model(alpha_H=a, l1_ratio=1.0).fit(X) for a in (0.0, 0.3))
    assert sparse.components_.sum() < plain.components_.sum()
    kl = [model(alpha_H=a, beta_loss=1, max_iter=3, tol=0).fit(COUNTS) for a in (0.0, 0.3)]
    assert kl[1].components_.sum() < kl[0].components_.sum()


def test_parameters_and_attributes_are_those_of_scikit_learn():
    theirs: Any = sklearn.decomposition.MiniBatchNMF
    ours, known = (inspect.signature(c).parameters for c in (MiniBatchNMF, theirs))
    assert list(ours) == list(known)
    same = [name for name in ours if ours[name].default == known[name].default]
    assert set(ours) - set(same) == {"init"}  # None, or a name, is theirs
    est = model(max_iter=2, tol=0).fit(X)
    fitted = theirs(R, max_iter=2, tol=0, init="random").fit(X)
    public = {name for name in vars(fitted) if name.endswith("_") and not name.startswith("_")}
    assert public <= set(vars(est))
    assert est.get_feature_names_out().tolist() == [f"minibatchnmf{c}" for c in range(R)]


def test_it_can_be_cloned_pickled_and_continued():
    est = model(max_iter=2, tol=0).fit(X)
    again = pickle.loads(pickle.dumps(est))
    for other in (est, again):
        other.partial_fit(X[:7])
    np.testing.assert_array_equal(again.components_, est.components_)
    assert not hasattr(clone(est), "components_")


def test_tensors_in_are_tensors_out():
    T = torch.from_numpy(X).float()
    est = model(max_iter=2, tol=0)
    W = est.fit_transform(T)
    assert isinstance(W, torch.Tensor)
    assert isinstance(est.components_, torch.Tensor)
    assert est.inverse_transform(W).shape == T.shape


def test_interruption_keeps_the_components_after_the_last_batch(monkeypatch):
    plain, seen = Learner.step, []

    def step(*args, **options):
        if len(seen) == 8:
            raise KeyboardInterrupt
        seen.append(plain(*args, **options))
        return seen[-1]

    monkeypatch.setattr(Learner, "step", step)
    est = model(tol=0)
    with pytest.warns(ConvergenceWarning, match="interrupted: the model has the components"):
        W = est.fit_transform(X)
    assert (est.n_iter_, est.n_steps_) == (2, 8)
    np.testing.assert_array_equal(est.components_, seen[-1][0].H.mT)
    assert np.linalg.norm(X - W @ est.components_) == pytest.approx(est.reconstruction_err_)


def test_interruption_on_dask_keeps_the_components_after_the_last_visit(monkeypatch):
    da, calls = pytest.importorskip("dask.array"), []

    def interrupted(*args):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return visited(*args)

    monkeypatch.setattr("factormer.estimator.minibatch.visited", interrupted)
    est = model(tol=0)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        est.fit(da.from_array(X, chunks=(100, N)))
    assert (est.n_iter_, est.n_steps_) == (3, 6)
    assert est.transform(X[:2]).shape == (2, R)


def test_interruption_of_the_first_batch_is_not_lost(monkeypatch):
    def execute(plan):
        (result,) = plain(plan)
        return (dataclasses.replace(result, status=Status.INTERRUPTED),)

    plain = learning.execute
    monkeypatch.setattr(learning, "execute", execute)
    with pytest.raises(KeyboardInterrupt):
        model().fit(X)


def test_a_first_batch_with_few_rows_gives_a_start():
    est = MiniBatchNMF(R, random_state=0)
    for k in range(0, M, 2):
        est.partial_fit(X[k : k + 2])
    assert error(est, X) < 0.3 * np.linalg.norm(X)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 0}, "batch_size is 0; it must be a whole number of at least 1"),
        ({"forget_factor": 1.5}, "forget_factor is 1.5; it must be a number from 0 to 1"),
        ({"max_no_improvement": 0}, "max_no_improvement is 0"),
        ({"transform_max_iter": 0}, "transform_max_iter is 0"),
        ({"fresh_restarts_max_iter": "x"}, "fresh_restarts_max_iter is 'x'"),
        ({"beta_loss": "absolute"}, "beta_loss is 'absolute'"),
        ({"init": "custom"}, "init='custom' needs H"),
        ({"n_components": 0}, "n_components is 0"),
    ],
)
def test_wrong_options_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        model().set_params(**options).fit(X)


@pytest.mark.parametrize(
    ("before", "option", "value"),
    [("frobenius", "beta_loss", 1), (1, "beta_loss", 2), (1, "beta_loss", 1.5),
     ("frobenius", "n_components", R + 1)],
)  # fmt: skip
def test_options_that_the_past_depends_on_must_stay(before, option, value):
    est = model(beta_loss=before).partial_fit(COUNTS[:50])
    components = est.components_.copy()
    with pytest.raises(ValueError, match=f"{option} is {value}, and the batches before .*a clone"):
        est.set_params(**{option: value}).partial_fit(COUNTS[50:90])
    np.testing.assert_array_equal(est.components_, components)
    same = {"frobenius": 2, 1: "kullback-leibler"}[before]
    est.set_params(beta_loss=same, n_components=R).partial_fit(COUNTS[50:90])


def test_wrong_data_is_refused():
    with pytest.raises(NotFittedError):
        model().transform(X)
    with pytest.raises(ValueError, match="Negative values in data passed to NMF"):
        model().fit(-X)
    with pytest.raises(ValueError, match="zeros"):
        model(beta_loss=0).fit(COUNTS)
    with pytest.raises(ValueError, match="X has 5 features, but MiniBatchNMF is expecting 24"):
        model(max_iter=1, tol=0).fit(X).partial_fit(X[:, :5])
    with pytest.raises(ValueError, match="too large or too small"):
        model(max_iter=1, tol=0).fit(X).partial_fit(np.full((2, N), 1e285))


@pytest.mark.parametrize("scale", [1e-170, 1e160])
@pytest.mark.parametrize("fit", ["fit", "partial_fit"])
def test_data_whose_squares_are_beyond_float64_is_refused(scale, fit):
    V = scale * (np.random.default_rng(0).random((20, 15)) + 0.1)
    with pytest.raises(ValueError, match="divide it by a number of its size"):
        getattr(MiniBatchNMF(3, batch_size=7, random_state=0), fit)(V)


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_the_unit_of_data_does_not_matter(scale):
    V = np.random.default_rng(0).random((20, 15)) + 0.1
    errors = [
        MiniBatchNMF(3, batch_size=7, random_state=0).fit(c * V).reconstruction_err_ / c
        for c in (1.0, scale)
    ]
    assert errors[1] == pytest.approx(errors[0], rel=1e-6)
