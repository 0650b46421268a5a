"""What a fit does around the engine: restarts, warm starts, known components, order, warnings."""

import io
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from factormer import NMF, Status, factorize
from factormer.functions import starting_point

draw = np.random.default_rng(0)
PARTS = draw.exponential(size=(5, 25)) * (draw.random((5, 25)) > 0.5)
X = draw.exponential(size=(60, 5)) @ PARTS + 0.05 * draw.random((60, 25))


def converged(**options: Any) -> NMF:
    return NMF(5, **{"random_state": 0, "max_iter": 2000, **options})


def test_best_of_several_runs_is_kept():
    """Some runs are left before their ends, so the best is the best up to the tolerance."""
    errors = [converged(init="random", n_init=n).fit(X).reconstruction_err_ for n in (1, 4)]
    assert errors[1] <= (1 + 1e-3) * errors[0]


def test_restarts_from_a_start_without_chance_are_of_chance():
    seen = []
    options = {"init": "nndsvd", "n_init": 3, "max_iter": 1, "tol": 0.0}
    NMF(5, callback=seen.append, random_state=0, **options).fit(X)
    starts = [float(row.rmse) for row in seen if row.iteration == 0]
    assert len(set(starts)) == 3


def test_restarts_share_a_time_limit():
    model = NMF(5, n_init=1000, time_limit=0.3, tol=0.0, max_iter=200).fit(X)
    assert model.status_ is Status.TIME_LIMIT


def test_warm_start_goes_on_from_before():
    model = NMF(5, random_state=0, max_iter=40, tol=0.0, warm_start=True).fit(X)
    before = model.reconstruction_err_
    model.fit(X)
    assert model.trace_.rmse[0] * np.sqrt(X.size) == pytest.approx(before, rel=1e-6)
    assert model.reconstruction_err_ <= before * (1 + 1e-9)


def test_warm_start_is_forgotten_where_the_shape_changed():
    model = NMF(5, random_state=0, warm_start=True, tol=0.0, max_iter=3).fit(X)
    assert model.set_params(n_components=4).fit(X).components_.shape == (4, 25)
    assert model.fit(X[:, :20]).components_.shape == (4, 20)


def test_known_components_stay_to_the_last_digit_and_come_first():
    model = converged(fixed_components=PARTS[:2]).fit(X)
    np.testing.assert_array_equal(model.components_[:2], PARTS[:2])
    free = converged().fit(X)
    assert model.reconstruction_err_ < 3 * free.reconstruction_err_


def test_mask_marks_rows_of_a_custom_start():
    H = PARTS + 0.3
    mask = np.array([False, True, False, True, False])
    model = converged(init="custom", fixed_components=mask)
    W = model.fit_transform(X, H=H)
    np.testing.assert_array_equal(model.components_[mask], H[mask])
    assert not np.allclose(model.components_[~mask], H[~mask])
    np.testing.assert_allclose(W, model.transform(X), atol=1e-9)


def test_all_components_may_be_known():
    model = converged(fixed_components=PARTS)
    W = model.fit_transform(X)
    np.testing.assert_array_equal(model.components_, PARTS)
    assert np.linalg.norm(X - W @ PARTS) == pytest.approx(model.reconstruction_err_)
    assert model.status_ is Status.CONVERGED


def test_components_come_by_their_share():
    model = converged()
    W = model.fit_transform(X)
    sizes = W.sum(axis=0) * model.components_.sum(axis=1)
    assert (np.diff(sizes) <= 1e-2 * sizes[0]).all()


def test_components_are_balanced_or_sum_to_one_or_neither():
    model = converged(tol=1e-8)
    W = model.fit_transform(X)
    lengths = np.linalg.norm(W, axis=0), np.linalg.norm(model.components_, axis=1)
    np.testing.assert_allclose(*lengths, rtol=1e-3)
    np.testing.assert_allclose(converged(scale="sum").fit(X).components_.sum(axis=1), 1)
    options = {"order": None, "scale": None, "tol": 0.0, "max_iter": 5}
    plain = NMF(5, random_state=0, **options).fit(X)
    np.testing.assert_array_equal(plain.components_, factorize(X, 5, **options).H.T)


def test_order_and_scale_change_the_answer_in_no_other_way():
    plain, tidy = (converged(order=o, scale=s).fit(X) for o, s in ((None, None), ("share", "sum")))
    assert tidy.reconstruction_err_ == pytest.approx(plain.reconstruction_err_, rel=1e-9)


def test_given_start_keeps_order_and_scale():
    order = [3, 1, 4, 0, 2]
    W = np.full((60, 5), 0.5)
    model = converged(init="custom", tol=0.0, max_iter=3)
    model.fit(X, W=W, H=PARTS[order] + 1e-3)
    matches = (model.components_ / np.linalg.norm(model.components_, axis=1)[:, None]) @ PARTS.T
    assert matches.argmax(axis=1).tolist() == order


def test_start_is_where_iterations_of_none_end():
    model = NMF(5, max_iter=0, random_state=0, order=None, scale=None).fit(X)
    W, H = starting_point(X, 5)
    np.testing.assert_allclose(model.components_, H.T, rtol=1e-14)
    np.testing.assert_array_equal(model.transform(X) >= 0, np.ones_like(W, dtype=bool))


@pytest.mark.parametrize("solver", ["auto", "mu"])
def test_end_before_convergence_is_told(solver):
    with pytest.warns(ConvergenceWarning, match="Maximum number of iterations 2 reached. Increase"):
        NMF(5, solver=solver, max_iter=2, init="random", random_state=0).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NMF(5, solver=solver, max_iter=2, init="random", tol=0.0).fit(X)  # as asked


def test_precision_that_is_reached_is_convergence():
    model = NMF(5, max_iter=2000, tol=1e-30, random_state=0).fit(X)
    assert model.status_ is Status.CONVERGED


def test_interruption_keeps_a_fitted_model_and_says_so():
    def stop(row: Any) -> None:
        if row.iteration == 5:
            raise KeyboardInterrupt

    model = NMF(5, callback=stop, tol=0.0, random_state=0)
    with pytest.warns(ConvergenceWarning, match="interrupted: the model is fitted with the best"):
        W = model.fit_transform(X)
    assert model.status_ is Status.INTERRUPTED
    assert np.linalg.norm(X - W @ model.components_) == pytest.approx(model.reconstruction_err_)
    assert model.transform(X[:2]).shape == (2, 5)


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_number_of_threads_does_not_matter(large):
    """To 1e-6 of the largest entry; what differs is the rounding of products cut by rows."""
    V = X if not large else draw.exponential(size=(900, 5)) @ draw.exponential(size=(5, 700))
    found, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(NMF(5, random_state=0, max_iter=60, tol=1e-6).fit(V).components_)
    finally:
        torch.set_num_threads(before)
    np.testing.assert_allclose(found[0], found[1], atol=1e-6 * found[0].max())


def test_another_process_finds_the_same():
    code = "import io, sys, numpy as np; from factormer import NMF\n"
    code += "X = np.load(io.BytesIO(sys.stdin.buffer.read()))\n"
    code += "np.save(out := io.BytesIO(), NMF(5, random_state=3).fit(X).components_)\n"
    code += "sys.stdout.buffer.write(out.getvalue())"  # numpy would look for a place in the pipe
    stream = io.BytesIO()
    np.save(stream, X)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, input=stream.getvalue(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    here = NMF(5, random_state=3).fit(X).components_
    there = np.load(io.BytesIO(done.stdout))
    # A process that compiles the loops may round otherwise than one that finds them compiled.
    np.testing.assert_allclose(there, here, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"fixed_components": np.ones((2, 7))}, r"has shape \(2, 7\); .* rows of 25 entries"),
        ({"fixed_components": np.ones((6, 25))}, "has 6 rows and n_components is 5; .* 1 to 5"),
        ({"fixed_components": -np.ones((2, 25))}, "negative or not finite"),
        ({"fixed_components": np.ones(5, bool)}, "a mask must .* init='custom'"),
        ({"fixed_components": PARTS, "accelerator": "accel-r10"}, "choose accelerator=None"),
        ({"callback": 3}, "callback is 3; it must be a function to call, or None"),
        ({"solver": "magic"}, "solver is 'magic', .* choose one of .*, cd"),
        ({"n_init": 0}, "n_init is 0; it must be a whole number of at least 1"),
        ({"order": "size"}, "order is 'size'; choose one of 'share', None"),
        ({"scale": "unit"}, "scale is 'unit'; choose one of 'balanced', 'sum', None"),
        ({"alpha_W": -1}, "alpha_W is -1; it must be at least 0"),
        ({"alpha_H": "twice"}, "alpha_H is 'twice'; it must be at least 0, or 'same'"),
        ({"l1_ratio": 1.5}, "l1_ratio is 1.5; it must be from 0 to 1"),
        (
            {"beta_loss": "kullback-leibler", "solver": "cd"},
            "does not handle beta_loss = 'kullback-leibler'",
        ),
        ({"beta_loss": "chi-square"}, "beta_loss is 'chi-square'; it must be 'frobenius'"),
    ],
)
def test_wrong_option_is_refused_with_a_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        NMF(5, **options).fit(X)


@pytest.mark.parametrize(
    ("W", "H", "sentence"),
    [
        (None, PARTS, "needs W as a dense array of shape"),
        (np.ones((9, 5)), PARTS, r"wrong first dimension passed to NMF \(input W\): .*\(60, 5\)"),
        (np.ones((60, 5)), PARTS[:, :4], r"wrong second dimension .* .input H."),
        (np.ones((60, 5)), -PARTS, "Negative values in data passed to NMF .input H.: clip"),
        (np.zeros((60, 5)), PARTS, "is full of zeros"),
        (np.ones(5), PARTS, "has 1 axes"),
    ],
)
def test_wrong_start_is_refused_with_a_sentence(W, H, sentence):
    with pytest.raises(ValueError, match=sentence):
        NMF(5, init="custom").fit(X, W=W, H=H)


def test_start_that_is_not_asked_for_is_told_of():
    with pytest.warns(RuntimeWarning, match="When init!='custom', provided W or H are ignored"):
        NMF(5, random_state=0).fit(X, W=np.ones((60, 5)), H=PARTS)


def test_a_warm_start_from_nothing_is_a_fresh_one():
    model = NMF(2, warm_start=True).fit(np.zeros((6, 4)))
    assert not model.components_.any()
    again = model.fit(X[:6, :4])
    assert again.reconstruction_err_ < np.linalg.norm(X[:6, :4])
