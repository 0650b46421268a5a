"""Volume() without a weight: that of a fit without it, as on the command line."""

from dataclasses import replace

import numpy as np
import pytest

from factormer import NMF, factorize, factorize_many
from factormer.app.read import Data
from factormer.app.runs.fit import FitOptions
from factormer.app.runs.volume import with_weights
from factormer.penalties import L2, Simplex, Volume

RNG = np.random.default_rng(0)
V = RNG.dirichlet(np.ones(3), 60) @ RNG.random((3, 20)) + 0.02 * RNG.random((60, 20))


def weighted(**options) -> Volume:
    plain = factorize(V, 3, regularize_W=Simplex(), **options)
    misfit = float(plain.rmse) ** 2 * V.size / 2
    return Volume(misfit, 0.001 * float(np.square(plain.H).sum()) / 3)


def test_the_weight_is_the_misfit_of_a_fit_without_it():
    asked = {"regularize_W": Simplex(), "regularize_H": Volume()}
    found = factorize(V, 3, **asked)
    expected = factorize(V, 3, regularize_W=Simplex(), regularize_H=weighted())
    np.testing.assert_allclose(found.H, expected.H, rtol=1e-6)
    model = NMF(3, random_state=0, **asked).fit(V)
    np.testing.assert_allclose(model.components_, found.H.T, rtol=1e-6)
    texts = FitOptions(regularize_w=("simplex",), regularize_h=("l2:0", "Volume"), n_init=2)
    of_command = with_weights(Data.of(V), texts, 3)
    said = f"volume:{weighted().weight:.2g}:{weighted().delta:.2g}"
    assert of_command == replace(texts, regularize_h=("l2:0", said))


def test_numbers_that_are_given_are_kept():
    asked = [L2(0.1), Volume(delta=0.5)]
    found = factorize(V, 3, regularize_W=Simplex(), regularize_H=asked)
    plain = factorize(V, 3, regularize_W=Simplex(), regularize_H=L2(0.1))
    one = Volume(float(plain.rmse) ** 2 * V.size / 2, 0.5)
    expected = factorize(V, 3, regularize_W=Simplex(), regularize_H=[L2(0.1), one])
    np.testing.assert_allclose(found.H, expected.H, rtol=1e-6)
    assert Volume(1.0).delta == 0.1


def test_where_no_fit_is_made_a_weight_is_asked_for():
    with pytest.raises(ValueError, match=r"Volume\(\) has no weight"):
        factorize_many(V, [3], regularize_W=Simplex(), regularize_H=Volume())
    with pytest.raises(ValueError, match="Volume has weight -1"):
        Volume(-1)
