"""patch_sklearn: programs that import from scikit-learn get ours, and afterwards its own."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.decomposition as decomposition
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import factormer
from factormer.app.cli import main
from factormer.clients import sklearn as patched
from factormer.data.intake import as_matrix
from factormer.estimator.fitting import request_of

theirs: Any = decomposition  # whose parts change
X = np.random.default_rng(0).random((30, 4)) @ np.random.default_rng(1).random((4, 20)) + 0.01


@pytest.fixture(autouse=True)
def unpatched():
    yield
    factormer.unpatch_sklearn()


def test_names_are_ours_until_they_are_given_back():
    before = {name: getattr(theirs, name) for name in patched_names()}
    factormer.patch_sklearn()
    factormer.patch_sklearn(strict=True)  # the last one counts
    assert issubclass(theirs.NMF, factormer.NMF)
    assert theirs.NMF is patched.NMF
    factormer.unpatch_sklearn()
    factormer.unpatch_sklearn()
    for name, original in before.items():
        assert getattr(theirs, name) is original


def test_names_that_were_imported_before_work_as_before():
    imported = theirs.non_negative_factorization
    factormer.patch_sklearn()
    W, H, _ = imported(X, n_components=3)
    assert (W.shape, H.shape) == ((30, 3), (3, 20))


@pytest.mark.parametrize("strict", [False, True])
def test_pipelines_have_the_names_that_they_had(strict):
    factormer.patch_sklearn(strict=strict)
    pipeline = make_pipeline(theirs.NMF(2), theirs.MiniBatchNMF(2))
    assert [name for name, _ in pipeline.steps] == ["nmf", "minibatchnmf"]
    first: Any = pipeline[0].fit(X)
    assert list(first.get_feature_names_out()) == ["nmf0", "nmf1"]


def patched_names() -> list[str]:
    return ["NMF", "MiniBatchNMF", "non_negative_factorization"]


def test_parameters_and_defaults_are_those_of_sklearn():
    kinds = ("NMF", "MiniBatchNMF")
    defaults = [getattr(theirs, kind)().get_params() for kind in kinds]
    factormer.patch_sklearn()
    assert [getattr(theirs, kind)().get_params() for kind in kinds] == defaults
    model = theirs.NMF(3, solver="mu", beta_loss="kullback-leibler")
    copy: Any = clone(model)
    assert copy.get_params() == model.get_params()
    loaded = pickle.loads(pickle.dumps(model.fit(X)))
    np.testing.assert_array_equal(loaded.components_, model.components_)


@pytest.mark.parametrize(("solver", "loss"), [("cd", "frobenius"), ("mu", "kullback-leibler")])
def test_a_solver_asks_for_the_loss_unless_it_is_to_be_obeyed(solver, loss, caplog):
    patched._said.clear()
    factormer.patch_sklearn()
    with caplog.at_level(logging.WARNING):
        model = theirs.NMF(4, solver=solver, beta_loss=loss, random_state=0)
        W = model.fit_transform(X)
        model.fit(X)
    assert [record.message for record in caplog.records if "asks factormer" in record.message] == [
        f"solver={solver!r} asks factormer for the loss alone, and the best solver serves it; "
        "patch_sklearn(strict=True) obeys"
    ]
    ours = factormer.NMF(4, beta_loss=loss, random_state=0)
    np.testing.assert_array_equal(W, ours.fit_transform(X))
    again, components, _ = theirs.non_negative_factorization(
        X, n_components=4, solver=solver, beta_loss=loss, random_state=0
    )
    np.testing.assert_array_equal(again, W)
    np.testing.assert_array_equal(components, ours.components_)
    assert model.solver == solver


@pytest.mark.parametrize("strict", [False, True])
def test_the_request_has_what_was_asked_for(strict):
    factormer.patch_sklearn(strict=strict)
    model = theirs.NMF(4, solver="mu")
    request = request_of(model._options(), as_matrix(X), None, None, None, 0)
    assert (request.solver, request.start) == (("mu", "nndsvda") if strict else ("auto", "auto"))


def test_what_sklearn_refuses_is_refused():
    factormer.patch_sklearn()
    with pytest.raises(ValueError, match="does not handle beta_loss"):
        theirs.NMF(2, beta_loss="kullback-leibler").fit(X)
    with pytest.raises(ValueError, match="does not handle beta_loss"):
        theirs.non_negative_factorization(X, beta_loss="kullback-leibler")


PROGRAM = """
import sys
from sklearn.decomposition import NMF
print(NMF.__module__, sys.argv[1:], __name__)
sys.exit(sys.argv[1] if sys.argv[1] == "sorry" else int(sys.argv[1]))
"""


def test_a_program_runs_as_it_is(tmp_path, capsys):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    assert main(["patch", str(program), "0", "--other"]) == 0
    assert capsys.readouterr().out == "factormer.clients.sklearn ['0', '--other'] __main__\n"
    assert main(["patch", str(program), "7"]) == 7
    assert main(["patch", str(program), "sorry"]) == 1
    assert "sorry" in capsys.readouterr().err
    assert main(["patch", str(program), "no number"]) == 1
    assert "ValueError: invalid literal" in capsys.readouterr().err
    assert main(["patch", str(Path("nowhere.py"))]) == 1
    assert "nowhere.py is not a file" in capsys.readouterr().err
