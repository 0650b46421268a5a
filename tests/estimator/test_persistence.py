"""A saved model is arrays and text; loaded, it does what it did."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from sklearn.exceptions import NotFittedError

from factormer import NMF, Status
from factormer.penalties import L2, Fixed, Free, Simplex, Smooth
from tests.data.test_files import fill_the_disk

draw = np.random.default_rng(0)
X = draw.random((20, 3)) @ draw.random((3, 9))


def test_model_comes_back_as_it_was(tmp_path):
    model = NMF(3, alpha_W=1e-3, l1_ratio=0.5, random_state=np.int64(4), tol=1e-3).fit(X)
    model.save(tmp_path / "model.safetensors")
    back = NMF.load(tmp_path / "model.safetensors")
    assert back.get_params() == model.get_params()
    np.testing.assert_array_equal(back.components_, model.components_)
    np.testing.assert_array_equal(back.transform(X), model.transform(X))
    for name in ("n_iter_", "reconstruction_err_", "n_features_in_", "n_components_", "status_"):
        assert getattr(back, name) == getattr(model, name)
    np.testing.assert_allclose(back.trace_.rmse, model.trace_.rmse)
    np.testing.assert_array_equal(back.trace_.iteration, model.trace_.iteration)
    assert isinstance(back.status_, Status)


def test_loss_and_constraints_are_kept(tmp_path):
    options: dict[str, Any] = {"regularize_W": Simplex(), "regularize_H": [Smooth(0.1), L2(0.2)]}
    model = NMF(3, random_state=0, max_iter=20, tol=0, **options).fit(X)
    model.save(tmp_path / "model")
    back = NMF.load(tmp_path / "model")
    assert back.regularize_W == [Simplex()]
    assert set(back.regularize_H) == {Smooth(0.1), L2(0.2)}
    np.testing.assert_array_equal(back.transform(X), model.transform(X))
    model = NMF(3, beta_loss="kullback-leibler", max_iter=5, tol=0, random_state=0).fit(X)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(NMF.load(tmp_path / "model").transform(X), model.transform(X))


def test_known_columns_as_a_penalty_are_not_saved(tmp_path):
    known = Fixed(draw.random((9, 1)), torch.arange(3) < 1)
    model = NMF(3, regularize_H=known, random_state=0, max_iter=3, tol=0).fit(X)
    with pytest.raises(ValueError, match="cannot be saved: use fixed_components"):
        model.save(tmp_path / "model")


def test_stream_goes_on_after_loading(tmp_path):
    model = NMF(3, random_state=0).partial_fit(X).partial_fit(X[:7])
    model.save(tmp_path / "model")
    back = NMF.load(tmp_path / "model")
    for one in (model, back):
        one.partial_fit(X[7:])
    np.testing.assert_array_equal(back.components_, model.components_)
    assert back.n_steps_ == model.n_steps_ == 3


def test_known_components_and_names_are_kept(tmp_path):
    model: Any = NMF(3, fixed_components=draw.random((2, 9)), random_state=0).fit(X)
    model.feature_names_in_ = np.array([f"word {k}" for k in range(9)], dtype=object)
    model.save(tmp_path / "model")
    back: Any = NMF.load(tmp_path / "model")
    np.testing.assert_array_equal(back.fixed_components, model.fixed_components)
    assert list(back.feature_names_in_) == list(model.feature_names_in_)


def test_tensors_come_back_as_tensors(tmp_path):
    model = NMF(3, random_state=0).fit(torch.from_numpy(X).float())
    model.save(tmp_path / "model")
    back = NMF.load(tmp_path / "model")
    assert back.components_.dtype == torch.float32
    assert torch.equal(back.components_, model.components_)


def test_what_has_no_text_is_left_out(tmp_path):
    options = {"random_state": np.random.RandomState(0), "callback": print}
    NMF(3, **options).set_params(callback=lambda row: None).fit(X).save(tmp_path / "model")
    assert NMF.load(tmp_path / "model").random_state is None


def test_what_set_output_chose_is_kept(tmp_path):
    pandas = pytest.importorskip("pandas")
    model = NMF(3, random_state=0).set_output(transform="pandas").fit(X)
    model.save(tmp_path / "model")
    back = NMF.load(tmp_path / "model")
    found = back.transform(X)
    assert isinstance(found, pandas.DataFrame)
    pandas.testing.assert_frame_equal(found, model.transform(X))
    NMF(3, random_state=0).fit(X).save(tmp_path / "model")
    assert isinstance(NMF.load(tmp_path / "model").transform(X), np.ndarray)


def test_only_fitted_models_are_saved(tmp_path):
    with pytest.raises(NotFittedError):
        NMF(3).save(tmp_path / "model")


@pytest.mark.parametrize("kind", ["other", "text"])
def test_other_files_are_refused_with_a_sentence(tmp_path, kind):
    path = tmp_path / "file"
    if kind == "text":
        path.write_text("no tensors here")
    else:
        save_file({"components_": torch.ones(2, 2)}, path, {"format": "factormer-1"})
    with pytest.raises(ValueError, match=r"is not a (saved NMF model|complete safetensors file)"):
        NMF.load(path)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.95])
def test_a_file_cut_short_is_refused_with_a_sentence(tmp_path, share):
    path = tmp_path / "model"
    NMF(3, random_state=0).fit(X).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(
        ValueError, match=r"is not a complete safetensors file .*; write it again with"
    ):
        NMF.load(path)


@pytest.mark.parametrize("gone", ["components_", "fitted"])
def test_a_file_that_lacks_a_part_is_refused_with_a_sentence(tmp_path, gone):
    head = {"format": "factormer-nmf-1", "params": "{}", "fitted": '{"is_tensor": false}'}
    arrays = {"components_": torch.ones(2, 2)} if gone == "fitted" else {"past": torch.ones(2, 2)}
    head.pop(gone, None)
    save_file(arrays, tmp_path / "model", head)
    with pytest.raises(ValueError, match=f"lacks a part of a saved NMF model.*'{gone}'"):
        NMF.load(tmp_path / "model")


def test_a_file_that_is_not_there_gets_a_sentence(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nowhere; write one with"):
        NMF.load(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        NMF.load(tmp_path)


def test_a_place_that_cannot_be_written_gets_a_sentence(tmp_path):
    model = NMF(3, random_state=0).fit(X)
    (tmp_path / "folder").mkdir()
    for place in (tmp_path / "nowhere" / "model", tmp_path / "folder"):
        with pytest.raises(OSError, match=r"cannot be written \(.*\); choose a file in a folder"):
            model.save(place)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def tampered(path: Path, change: Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], Any]):
    """A saved model after a change to its arrays, parameters or what was fitted."""
    NMF(3, random_state=0, max_iter=3, tol=0.0).partial_fit(X).partial_fit(X).save(path)
    arrays = load_file(path)
    with safe_open(path, "pt") as file:
        head = file.metadata()
    params, fitted = json.loads(head["params"]), json.loads(head["fitted"])
    change(arrays, params, fitted)
    head |= {"params": json.dumps(params), "fitted": json.dumps(fitted)}
    save_file(arrays, path, head)


CHANGES: dict[str, tuple[Callable[[Any, Any, Any], object], str]] = {
    "shape": (lambda a, p, f: a.update(components_=torch.ones(3, 8)), "for 3 components of 9"),
    "axes": (lambda a, p, f: a.update(components_=torch.ones(3)), "not a matrix of floats"),
    "none": (lambda a, p, f: a.update(components_=torch.ones(0, 9)), "not a matrix of floats"),
    "integers": (lambda a, p, f: a.update(components_=torch.ones(3, 9).int()), "not a matrix"),
    "NaN": (lambda a, p, f: a["components_"].fill_(float("nan")), "NaN or infinite"),
    "negative": (lambda a, p, f: a["components_"].neg_(), "entries below zero"),
    "past": (lambda a, p, f: a.update(past=torch.ones(2, 3)), "past has shape"),
    "past NaN": (lambda a, p, f: a["past"].fill_(float("inf")), "must be finite"),
    "stream": (lambda a, p, f: a.update(stream_A=torch.ones(2)), "stream_A has shape"),
    "half a stream": (lambda a, p, f: a.pop("stream_B"), "'stream_B'"),
    "trace": (lambda a, p, f: a.update(seconds=torch.ones(9)), "seconds has shape"),
    "status": (lambda a, p, f: f.update(status="FINE"), "'FINE'"),
    "rows": (lambda a, p, f: f.update(past_rows="many"), "past_rows is 'many'; it must be int"),
    "iterations": (lambda a, p, f: f.update(n_iter_=[1]), r"n_iter_ is \[1\]"),
    "error": (lambda a, p, f: f.update(reconstruction_err_="0"), "reconstruction_err_ is '0'"),
    "names": (lambda a, p, f: f.update(feature_names_in_=["a"]), "names of 9 features"),
    "output": (lambda a, p, f: f.update(output="os"), "output is 'os'"),
    "kind": (lambda a, p, f: f.update(is_tensor="yes"), "is_tensor is 'yes'"),
    "parameter": (lambda a, p, f: p.update(more=1), r"no parameters \['more'\]"),
    "nested": (lambda a, p, f: p.update(init__more=1), "no parameters"),
    "loss": (lambda a, p, f: p.update(beta_loss=[1]), "beta_loss is"),
    "penalty": (lambda a, p, f: p.update(regularize_W=[{"name": "os"}]), "'os'"),
    "weight": (lambda a, p, f: p.update(regularize_W=[{"name": "L1", "weight": "a"}]), "weight"),
    "penalties": (lambda a, p, f: p.update(regularize_W=3), "penalties are 3"),
    "fixed": (lambda a, p, f: a.update(fixed_components=-torch.ones(1, 9)), "fixed_components"),
}


@pytest.mark.parametrize(("change", "sentence"), CHANGES.values(), ids=CHANGES.keys())
def test_a_file_that_was_tampered_with_is_refused_with_a_sentence(tmp_path, change, sentence):
    tampered(tmp_path / "model", change)
    with pytest.raises(ValueError, match=rf"model .*{sentence}.*; write it again with NMF.save"):
        NMF.load(tmp_path / "model")


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "3", "{"])
@pytest.mark.parametrize("part", ["params", "fitted"])
def test_text_that_is_no_object_is_refused_with_a_sentence(tmp_path, part, text):
    head = {"format": "factormer-nmf-1", "params": "{}", "fitted": "{}", part: text}
    save_file({"components_": torch.ones(3, 9)}, tmp_path / "model", head)
    with pytest.raises(ValueError, match=r"(?s)model .*; write it again with NMF.save"):
        NMF.load(tmp_path / "model")


def test_components_of_either_sign_are_loaded_where_they_may_be(tmp_path):
    model = NMF(3, random_state=0, max_iter=3, tol=0.0, regularize_H=Free()).fit(X)
    model.components_ = -np.abs(model.components_)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(NMF.load(tmp_path / "model").components_, model.components_)


def test_a_full_disk_and_a_link_leave_the_old_model(tmp_path, monkeypatch):
    model = NMF(3, random_state=0).fit(X)
    model.save(path := tmp_path / "model")
    before = path.read_bytes()
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(OSError, match="it is a symbolic link, which is never replaced"):
        model.save(tmp_path / "link")
    fill_the_disk(monkeypatch, 0)
    with pytest.raises(OSError, match=r"model cannot be written \(No space left on device\)"):
        model.save(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "model"]
