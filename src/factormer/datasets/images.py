"""The paper's two real matrices, from the files that are in circulation (section 7.1).

They are not the package's to distribute, so the user names a folder that holds them: by an option
(`--data`) or by the environment variable FACTORMER_DATA. Rows are pixels, as in the paper: a column
of V, reshaped to a square, is an image the right way up. Each matrix is divided by its mean.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.io
import torch
from jaxtyping import Float
from torch import Tensor

_BY = "by --data or by the environment variable FACTORMER_DATA"


@dataclass(frozen=True)
class _Images:
    """A set of square images and the two files it may come in, each of one row per image.

    The .mat is MATLAB's, in which an image is stored column by column; the .npz, under the key V,
    stores it row by row.
    """

    title: str
    source: str
    mat: str
    key: str
    npz: str
    n_images: int
    side: int

    def load(self, folder: str | Path) -> Float[Tensor, "pixels images"]:
        path, shape = self._find(Path(folder)), (self.n_images, self.side**2)
        values = _read(path, self.key if path.name == self.mat else "V")
        if values.shape != shape:
            raise ValueError(f"{path}: expected a matrix of shape {shape}, found {values.shape}")
        images = values.astype(np.float64).reshape(self.n_images, self.side, self.side)
        if path.name == self.mat:
            images = images.swapaxes(1, 2)
        V = torch.from_numpy(images.reshape(shape).T.copy())
        return V / V.mean()

    def _find(self, folder: Path) -> Path:
        for path in (folder / self.mat, folder / self.npz):
            if path.is_file():
                return path
        raise FileNotFoundError(
            f"found neither {self.mat} nor {self.npz} in {folder}; get the former ({self.title}: "
            f"{self.source}; its array {self.key!r} is {self.n_images}×{self.side**2}), or save "
            f"the same, each image row by row, as 'V' of the latter; name the folder {_BY}"
        )


_YALE = _Images(
    title="Yale face database, 64×64 version of Deng Cai's page",
    source="http://www.cad.zju.edu.cn/home/dengcai/Data/FaceData.html",
    mat="Yale_64x64.mat",
    key="fea",
    npz="yale_faces_64.npz",
    n_images=165,
    side=64,
)
_JASPER = _Images(
    title="Jasper Ridge, subset of Zhu's hyperspectral unmixing page",
    source="described in https://arxiv.org/abs/1708.05125",
    mat="jasperRidge2_R198.mat",
    key="Y",
    npz="jasper_ridge.npz",
    n_images=198,
    side=100,
)


def data_folder(option: str | Path | None = None) -> Path:
    """Return the folder of the real datasets: the option, else the one FACTORMER_DATA names."""
    folder = option or os.environ.get("FACTORMER_DATA")
    if not folder:
        files = " and ".join(f"{x.mat} (or {x.npz})" for x in (_YALE, _JASPER))
        raise FileNotFoundError(f"no folder of datasets was given; name one with {files} {_BY}")
    return Path(folder).expanduser()


def load_yale(folder: str | Path) -> Float[Tensor, "4096 165"]:
    """Load the Yale faces, pixels × images, of mean 1.

    `V[:, i].reshape(64, 64)` is face i. The folder holds `Yale_64x64.mat` or `yale_faces_64.npz`;
    where it holds both, the former is read. Two pairs of images are identical.
    """
    return _YALE.load(folder)


def load_jasper(folder: str | Path) -> Float[Tensor, "10000 198"]:
    """Load the Jasper Ridge hyperspectral image, pixels × bands, of mean 1.

    `V[:, b].reshape(100, 100)` is band b. The folder holds `jasperRidge2_R198.mat` or
    `jasper_ridge.npz`; where it holds both, the former is read.
    """
    return _JASPER.load(folder)


def _read(path: Path, key: str) -> np.ndarray:
    """Read one array of a .mat or .npz file; nothing in it is executed."""
    if path.suffix == ".mat":
        arrays = scipy.io.loadmat(path)
    else:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
    if key not in arrays:
        names = sorted(name for name in arrays if not name.startswith("__"))
        raise ValueError(f"{path}: expected an array named {key!r}, found {names}")
    return arrays[key]
