"""Training on your own matrices: what is read, how it is cut, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from factormer_lab.train.anyrank.config import AnyRankTraining
from factormer_lab.train.anyrank.export import make_card
from factormer_lab.train.anyrank.own import parts_of
from factormer_lab.train.anyrank.problems import draw_bucket
from lab.tests.train.anyrank.test_course import CONFIG, trained


@pytest.fixture
def file(tmp_path):
    rng = np.random.default_rng(0)
    V = rng.exponential(size=(80, 3)) @ rng.exponential(size=(3, 16))
    np.save(tmp_path / "own.npy", V)
    return tmp_path / "own.npy"


def test_rows_are_either_trained_on_or_held_out(file):
    seen, unseen = parts_of([str(file)])
    rows = torch.cat([seen.matrices[0], unseen.matrices[0]])
    assert (len(seen.matrices[0]), len(unseen.matrices[0])) == (64, 16)
    expected = torch.from_numpy(np.load(file)).float()
    torch.testing.assert_close(rows[rows[:, 0].argsort()], expected[expected[:, 0].argsort()])


def test_parts_have_the_shape_asked_for_and_unit_size(file, rng):
    seen, _ = parts_of([str(file)])
    V = seen.draw((9, 5, 2), 3, rng)
    assert V.shape == (3, 9, 5)
    torch.testing.assert_close(V.square().mean(dim=(1, 2)), torch.ones(3))


def test_part_of_the_whole_size_is_the_matrix_in_another_order(file, rng):
    _, unseen = parts_of([str(file)])
    (V,) = unseen.draw((16, 16, 2), 1, rng)
    whole = unseen.matrices[0] / unseen.matrices[0].square().mean().sqrt()
    torch.testing.assert_close(V.flatten().sort().values, whole.flatten().sort().values)
    torch.testing.assert_close(V.sum(dim=0).sort().values, whole.sum(dim=0).sort().values)


def test_shapes_are_cut_to_what_there_is(file):
    _, unseen = parts_of([str(file)])
    assert unseen.fitting((200, 100, 64)) == (16, 16, 12)
    assert unseen.fitting((9, 7, 2)) == (9, 7, 2)


def test_compressed_files_are_read_by_their_key(file):
    np.savez(file.with_suffix(".npz"), V=np.load(file), labels=np.arange(80))
    seen, again = (parts_of([str(file.with_suffix(end))])[0] for end in (".npy", ".npz"))
    assert torch.equal(seen.matrices[0], again.matrices[0])


def test_network_trains_on_files_that_the_config_names(file, tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(f'name = "own"\nkind = "any-rank"\ndata = ["{file}"]\n')
    config = replace(CONFIG, name="own", data=AnyRankTraining.load(path).data)
    config = replace(config, per_kind=10, n_steps=2)
    run = trained(config, tmp_path / "run")
    assert run.finished
    assert set(run.figures["by kind"]) == {"own"}
    assert "parts of own.npy" in make_card(config, run, device="cpu").training["data"]


def test_bucket_of_parts_has_sound_starts(file, rng):
    bucket = draw_bucket((12, 9, 3), 8, rng, parts_of([str(file)])[0])
    assert bucket.V.shape == (8, 12, 9)
    assert all((F >= 0).all() and F.isfinite().all() for F in bucket.x0)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (np.ones((20, 20)), "it must have at least 60 rows"),
        (-np.ones((80, 20)), "at least 0; clean"),
        (np.ones(80), "expected a matrix of numbers"),
        (np.full((80, 20), "a"), "expected a matrix of numbers"),
    ],
)
def test_wrong_data_are_refused_with_a_sentence(tmp_path, contents, message):
    np.save(tmp_path / "x.npy", contents)
    with pytest.raises(ValueError, match=message):
        parts_of([str(tmp_path / "x.npy")])


def test_missing_file_and_key_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*x\.npy"):
        parts_of([str(tmp_path / "x.npy")])
    np.savez(tmp_path / "y.npz", a=np.ones((3, 3)), b=np.ones(3))
    with pytest.raises(ValueError, match="expected an array named 'V'"):
        parts_of([str(tmp_path / "y.npz")])


def test_empty_matrix_is_refused_when_parts_are_drawn(tmp_path, rng):
    np.save(tmp_path / "zero.npy", np.zeros((80, 20)))
    with pytest.raises(ValueError, match="all zero; drop empty rows"):
        parts_of([str(tmp_path / "zero.npy")])[0].draw((12, 12, 2), 1, rng)
