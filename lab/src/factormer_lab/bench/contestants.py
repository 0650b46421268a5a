"""Packages that factorise, each as a black box: k iterations from nothing, its start included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse

Run = Callable[[Any, int, int], tuple[Any, Any]]  # (V, r, k) to W (m, r) and H (n, r)


@dataclass(frozen=True)
class Contestant:
    """A package with the options that differ from its defaults; importing it is put off."""

    name: str
    package: str  # as pip knows it
    call: str
    load: Callable[..., Run]
    options: dict[str, Any] = field(default_factory=dict)
    dense: bool = True
    sparse: bool = True
    fewest: int = 1  # iterations that it can be asked for
    remark: str = ""

    def ready(self) -> Run:
        """Import the package; raises ImportError where it cannot be."""
        return self.load(**self.options)

    def takes(self, V: Any) -> bool:
        """Whether it is made for data of this kind."""
        return self.sparse if scipy.sparse.issparse(V) else self.dense

    @property
    def settings(self) -> str:
        """The call as it is made, k being the iterations; all else is by default."""
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return self.call.replace(", …", options)


def coefficients(V: Any, H: Any) -> np.ndarray:
    """The W ≥ 0 that fits V ≈ W Hᵀ best, row by row."""
    Q, R = np.linalg.qr(H)
    return np.stack([scipy.optimize.nnls(R, row)[0] for row in V @ Q])


def _factormer(**options: Any) -> Run:
    import factormer

    def run(V: Any, r: int, k: int) -> tuple[Any, Any]:
        model = factormer.NMF(r, max_iter=k, **options)
        W = model.fit_transform(V)
        return W, model.components_.T

    return run


def _sklearn(**options: Any) -> Run:
    from sklearn.decomposition import NMF

    def run(V: Any, r: Any, k: int) -> tuple[Any, Any]:
        model = NMF(r, max_iter=k, **options)
        W = model.fit_transform(V)
        return W, model.components_.T

    return run


def _minibatch(**options: Any) -> Run:
    from sklearn.decomposition import MiniBatchNMF

    def run(V: Any, r: Any, k: int) -> tuple[Any, Any]:
        model = MiniBatchNMF(r, max_iter=k, **options)
        W = model.fit_transform(V)
        return W, model.components_.T

    return run


def _torchnmf(**options: Any) -> Run:
    import torch
    from torchnmf.nmf import NMF  # pyright: ignore[reportMissingImports]

    def run(V: Any, r: int, k: int) -> tuple[Any, Any]:
        torch.manual_seed(0)
        model = NMF(V.shape, r).double()
        if scipy.sparse.issparse(V):
            coo = V.tocoo()
            places = torch.from_numpy(np.stack([coo.row, coo.col]))
            data = torch.sparse_coo_tensor(places, torch.from_numpy(coo.data), coo.shape)
        else:
            data = torch.from_numpy(V)
        model.fit(data, max_iter=k, **options)
        assert model.H is not None
        assert model.W is not None
        return model.H.detach().numpy(), model.W.detach().numpy()

    return run


def _nmf_torch(**options: Any) -> Run:
    from nmf import run_nmf  # pyright: ignore[reportMissingImports]

    def run(V: Any, r: int, k: int) -> tuple[Any, Any]:
        W, Ht, _ = run_nmf(V, r, batch_max_iter=k, **options)
        return W, Ht.T

    return run


def _tensorly(**options: Any) -> Run:
    from tensorly.decomposition import (  # pyright: ignore[reportMissingImports]
        non_negative_parafac_hals,
    )

    def run(V: Any, r: int, k: int) -> tuple[Any, Any]:
        weights, (W, H) = non_negative_parafac_hals(V, r, n_iter_max=k, **options)
        return W * weights, H

    return run


def _pyplanc(**options: Any) -> Run:
    from pyplanc import nmf  # pyright: ignore[reportMissingImports]

    def run(V: Any, r: int, k: int) -> tuple[Any, Any]:
        data = V.tocsc() if scipy.sparse.issparse(V) else np.asfortranarray(V)
        result = nmf(data, r, niter=k, **options)
        return result.W, result.H

    return run


def _gensim(**options: Any) -> Run:
    from gensim.models.nmf import Nmf  # pyright: ignore[reportMissingImports]

    def run(V: Any, r: int, k: int) -> tuple[Any, Any]:
        words = {j: str(j) for j in range(V.shape[1])}
        model = Nmf(V.T.tocsc(), num_topics=r, id2word=words, passes=k, **options)
        return None, model.get_topics().T

    return run


_SKLEARN = "NMF(r, max_iter=k, …)"
_ALL = (
    Contestant("factormer", "factormer", _SKLEARN, _factormer, {"tol": 0, "random_state": 0}),
    Contestant(
        "sklearn-cd",
        "scikit-learn",
        _SKLEARN,
        _sklearn,
        {"solver": "cd", "init": "nndsvda", "tol": 0, "random_state": 0},
    ),
    Contestant(
        "sklearn-cd-random",
        "scikit-learn",
        _SKLEARN,
        _sklearn,
        {"solver": "cd", "init": "random", "tol": 0, "random_state": 0},
    ),
    Contestant(
        "sklearn-mu",
        "scikit-learn",
        _SKLEARN,
        _sklearn,
        {"solver": "mu", "init": "nndsvda", "tol": 0, "random_state": 0},
    ),
    Contestant(
        "sklearn-minibatch",
        "scikit-learn",
        "MiniBatchNMF(r, max_iter=k, …)",
        _minibatch,
        {"tol": 0, "max_no_improvement": None, "random_state": 0},
        remark="an iteration is a pass",
    ),
    Contestant(
        "torchnmf",
        "torchnmf",
        "NMF(V.shape, r).double().fit(V, max_iter=k, …)",
        _torchnmf,
        {"beta": 2, "tol": -1.0},
        remark="tol=0 would stop it at the first rise of the error",
    ),
    Contestant(
        "nmf-torch",
        "nmf-torch",
        "run_nmf(V, r, batch_max_iter=k, …)",
        _nmf_torch,
        {"tol": 0, "fp_precision": "double"},
        sparse=False,
        fewest=10,
        remark="fails below ten iterations",
    ),
    Contestant(
        "tensorly-hals",
        "tensorly",
        "non_negative_parafac_hals(V, r, n_iter_max=k, …)",
        _tensorly,
        {"tol": 0, "random_state": 0},
        sparse=False,
    ),
    Contestant(
        "pyplanc",
        "pyplanc",
        "nmf(V, r, niter=k)",
        _pyplanc,
        remark="takes no seed",
    ),
    Contestant(
        "gensim",
        "gensim",
        "Nmf(V.T, num_topics=r, passes=k, …)",
        _gensim,
        {"normalize": False, "eval_every": None, "random_state": 0},
        dense=False,
        remark="an iteration is a pass; it learns H, the best W for which is ours, off the clock",
    ),
)
CONTESTANTS = {contestant.name: contestant for contestant in _ALL}
