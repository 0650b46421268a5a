"""The loaders, on files of random numbers in the two forms that each dataset comes in."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import scipy.io
import torch
from torch import Tensor

from factormer.datasets import data_folder, load_jasper, load_yale


class Case(NamedTuple):
    load: Callable[[Path], Tensor]
    mat: str
    key: str
    npz: str
    n_images: int
    side: int
    source: str


CASES = [
    Case(load_yale, "Yale_64x64.mat", "fea", "yale_faces_64.npz", 165, 64, "Deng Cai"),
    Case(load_jasper, "jasperRidge2_R198.mat", "Y", "jasper_ridge.npz", 198, 100, "Zhu"),
]


@pytest.fixture(params=CASES, ids=["yale", "jasper"])
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


def draw_images(case: Case, dtype: type = np.uint8) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (case.n_images, case.side, case.side)).astype(dtype)


def save_mat(folder: Path, case: Case, images: np.ndarray) -> None:
    columns_first = images.swapaxes(1, 2).reshape(case.n_images, -1)
    sizes = {"nRow": case.side, "nCol": case.side, "nBand": case.n_images, "maxValue": 255}
    scipy.io.savemat(folder / case.mat, {case.key: columns_first, **sizes})


def save_npz(folder: Path, case: Case, images: np.ndarray) -> None:
    np.savez(folder / case.npz, V=images.reshape(case.n_images, -1))


@pytest.mark.parametrize("save", [save_mat, save_npz])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float64])
def test_columns_are_upright_images_of_mean_one(
    case: Case, save: Callable[[Path, Case, np.ndarray], None], dtype: type, tmp_path: Path
):
    images = draw_images(case, dtype)
    save(tmp_path, case, images)
    V = case.load(tmp_path)
    assert V.shape == (case.side**2, case.n_images)
    assert V.dtype == torch.float64
    assert V.is_contiguous()
    assert V.mean().item() == pytest.approx(1, abs=1e-12)
    face = V[:, 7].reshape(case.side, case.side).numpy()
    np.testing.assert_allclose(face, images[7] / images.mean(), rtol=1e-12)


def test_both_forms_give_the_same_matrix(case: Case, tmp_path: Path):
    images = draw_images(case)
    for name, save in (("mat", save_mat), ("npz", save_npz)):
        (tmp_path / name).mkdir()
        save(tmp_path / name, case, images)
    assert torch.equal(case.load(tmp_path / "mat"), case.load(tmp_path / "npz"))


def test_missing_dataset_says_what_where_and_how(case: Case, tmp_path: Path):
    with pytest.raises(FileNotFoundError) as error:
        case.load(tmp_path)
    for word in (case.mat, case.npz, str(tmp_path), case.source, "FACTORMER_DATA", "--data"):
        assert word in str(error.value)


@pytest.mark.parametrize("save", [save_mat, save_npz])
def test_wrong_shape_is_told(
    case: Case, save: Callable[[Path, Case, np.ndarray], None], tmp_path: Path
):
    smaller = case._replace(n_images=case.n_images - 1)
    save(tmp_path, smaller, draw_images(smaller))
    expected, found = case.n_images, smaller.n_images
    with pytest.raises(ValueError, match=rf"expected .* \({expected}, .* \({found}, "):
        case.load(tmp_path)


def test_missing_key_is_told(case: Case, tmp_path: Path):
    np.savez(tmp_path / case.npz, faces=np.zeros(3))
    with pytest.raises(ValueError, match=r"'V', found \['faces'\]"):
        case.load(tmp_path)
    scipy.io.savemat(tmp_path / case.mat, {"faces": np.zeros(3)})
    with pytest.raises(ValueError, match=rf"'{case.key}', found \['faces'\]"):
        case.load(tmp_path)


def test_pickled_objects_are_refused(case: Case, tmp_path: Path):
    np.savez(tmp_path / case.npz, V=np.array([print], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        case.load(tmp_path)


def test_option_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FACTORMER_DATA", "from-environment")
    assert data_folder("from-option") == Path("from-option")
    assert data_folder(None) == Path("from-environment")


def test_no_folder_at_all_is_told(monkeypatch: pytest.MonkeyPatch):
    for unset in (
        lambda: monkeypatch.delenv("FACTORMER_DATA", raising=False),
        lambda: monkeypatch.setenv("FACTORMER_DATA", ""),
    ):
        unset()
        with pytest.raises(FileNotFoundError, match=r"--data .* FACTORMER_DATA"):
            data_folder(None)
