"""Documented options that no other test asks for."""

import json
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.special

from factormer import MiniBatchNMF, consensus, cross_validate, select_loss
from factormer.app.cli import main
from tests.characterise.data import counts, planted

V = planted(40, 30, 3)
COUNTS = counts(60, 30, 3, 20.0)


def test_a_consensus_takes_a_start_and_a_device_and_shows_a_bar(capsys):
    options: Any = {"n_runs": 4, "random_state": 0}
    plain = consensus(V, 3, **options)
    watched = consensus(V, 3, init="random", device="cpu", progress=True, **options)
    assert np.array_equal(plain.H, watched.H)
    assert capsys.readouterr().out
    rotated = consensus(V, 3, init="rotated", **options)
    assert rotated.error <= 1.01 * plain.error


def test_a_cross_validation_takes_limits_and_a_device_and_shows_a_bar(capsys):
    options: Any = {"n_folds": 2, "random_state": 0}
    plain = cross_validate(V, [2, 3], **options)
    watched = cross_validate(V, [2, 3], device="cpu", progress=True, **options)
    assert np.array_equal(plain.errors, watched.errors)
    assert capsys.readouterr().out
    short = cross_validate(V, [2, 3], max_iter=1, tol=0, **options)
    assert short.errors.min() > plain.errors.min()


def test_a_loss_is_selected_on_the_device_that_is_named():
    assert select_loss(COUNTS, device="cpu").loss == select_loss(COUNTS).loss


def test_mini_batches_begin_at_the_start_that_is_named_and_show_a_bar(capsys):
    options: Any = {"batch_size": 10, "max_iter": 3, "tol": 0, "random_state": 0}
    MiniBatchNMF(3, init="random", **options).fit(V)
    assert not capsys.readouterr().out
    named = MiniBatchNMF(3, init="random", verbose=1, **options).fit(V)
    assert capsys.readouterr().out
    H = np.random.default_rng(0).random((3, 30))
    W = np.random.default_rng(1).random((40, 3))
    given = MiniBatchNMF(3, init="custom", **options).fit(V, W=W, H=H)
    assert not np.allclose(named.components_, given.components_)


@pytest.mark.parametrize("limit", ["transform_max_iter", "fresh_restarts_max_iter"])
def test_more_iterations_for_coefficients_fit_no_worse(limit):
    def error(iterations: int) -> float:
        model = MiniBatchNMF(
            3, batch_size=20, beta_loss="kullback-leibler", max_iter=5, tol=0, random_state=0,
            fresh_restarts=True, **{limit: iterations},
        ).fit(COUNTS)  # fmt: skip
        Y = model.transform(COUNTS) @ model.components_
        return float(scipy.special.kl_div(COUNTS, np.maximum(Y, 1e-300)).sum())

    assert error(200) <= 1.001 * error(1)


def test_new_rows_are_read_and_written_as_the_options_say(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", V=V, other=V[:5, :5])
    scipy.io.savemat("turned.mat", {"A": V.T, "B": V[:2]})
    np.save("images.npy", V.reshape(40, 5, 6))
    assert (
        main(["fit", "data.npz", "--key", "V", "--rank", "3", "--out", "run", "--tol", "1e-3"]) == 0
    )
    capsys.readouterr()
    written = []
    for number, asked in enumerate(
        ["data.npz --key V", "turned.mat --key A --transpose", "images.npy --layout images"]
    ):
        place = f"W{number}.csv"
        assert main(["transform", *asked.split(), "--model", "run", "--out", place, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["file"] == place
        lines = (tmp_path / place).read_text().splitlines()[1:]
        written.append(np.array([line.split(",")[-3:] for line in lines], float))
    fitted = np.load("run/rank-3/factors.npz")["W"]
    for W in written:
        np.testing.assert_allclose(W, fitted, rtol=1e-5, atol=1e-8)


def test_a_race_takes_a_seed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("data.npy", V)
    assert (
        main(["bench", "data.npy", "--rank", "2", "--seed", "5", "--repeats", "1", "--json"]) == 0
    )
    assert json.loads(capsys.readouterr().out)["rows"]
