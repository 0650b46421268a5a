"""Packages that factorise, each as a black box: k iterations from nothing, its start included."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse

Run = Callable[[Any, int, int], tuple[Any, Any]]  # (V, r, k) to W (m, r) and H (n, r)
KL = {"beta_loss": "kullback-leibler"}


@dataclass(frozen=True)
class Contestant:
    """A package with the options that differ from its defaults, which is imported when it runs."""

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
        """Return whether it is made for data of this kind."""
        return self.sparse if scipy.sparse.issparse(V) else self.dense

    @property
    def settings(self) -> str:
        """The call as it is made, k being the iterations; all else is by default."""
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return self.call.replace(", …", options)


def coefficients(V: Any, H: Any) -> np.ndarray:
    """Return the W ≥ 0 that fits V ≈ W Hᵀ best, row by row."""
    Q, R = np.linalg.qr(H)
    return np.stack([scipy.optimize.nnls(R, row)[0] for row in V @ Q])


def _estimator(estimator: Any, options: dict[str, Any]) -> Run:
    def run(V: Any, r: int, k: int) -> tuple[Any, Any]:
        model = estimator(r, max_iter=k, **options)
        W = model.fit_transform(V)
        return W, model.components_.T

    return run


def _factormer(**options: Any) -> Run:
    import factormer

    return _estimator(factormer.NMF, options)


def _sklearn(**options: Any) -> Run:
    from sklearn.decomposition import NMF

    return _estimator(NMF, options)


def _minibatch(**options: Any) -> Run:
    from sklearn.decomposition import MiniBatchNMF

    return _estimator(MiniBatchNMF, options)


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


def _nmf_rs(**options: Any) -> Run:
    from nmf_rs import nmf, nndsvd_init  # pyright: ignore[reportMissingImports]

    def run(V: Any, r: int, k: int) -> tuple[Any, Any]:
        W, Ht = nndsvd_init(V, r, fill="mean")
        found = nmf(V, r, W0=W, H0=Ht, max_iter=k, **options)
        return found.W, found.H.T

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


_SEED = {"tol": 0, "random_state": 0}


def _ours(name: str, **options: Any) -> Contestant:
    return Contestant(name, "factormer", "NMF(r, max_iter=k, …)", _factormer, _SEED | options)


def _theirs(name: str, **options: Any) -> Contestant:
    return Contestant(name, "scikit-learn", "NMF(r, max_iter=k, …)", _sklearn, options | _SEED)


def _rust(name: str, method: str) -> Contestant:
    call = 'nmf(V, r, **nndsvd_init(V, r, fill="mean"), max_iter=k, …)'
    return Contestant(name, "nmf-rs", call, _nmf_rs, {"method": method}, sparse=False)


PEERS = (
    _ours("factormer"),
    _theirs("sklearn-cd", solver="cd", init="nndsvda"),
    _theirs("sklearn-cd-random", solver="cd", init="random"),
    _theirs("sklearn-mu", solver="mu", init="nndsvda"),
    Contestant(
        "sklearn-minibatch",
        "scikit-learn",
        "MiniBatchNMF(r, max_iter=k, …)",
        _minibatch,
        _SEED | {"max_no_improvement": None},
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
    _rust("nmf-rs", "ehals"),
    Contestant(
        "tensorly-hals",
        "tensorly",
        "non_negative_parafac_hals(V, r, n_iter_max=k, …)",
        _tensorly,
        _SEED,
        sparse=False,
    ),
    Contestant("pyplanc", "pyplanc", "nmf(V, r, niter=k)", _pyplanc, remark="takes no seed"),
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
COUNTING = (  # under Kullback–Leibler
    _ours("factormer-kl", **KL),
    _ours("factormer-kl-mu", **KL, solver="mu-extrapolated"),
    _theirs("sklearn-kl", **KL, solver="mu", init="nndsvda"),
    _theirs("sklearn-kl-random", **KL, solver="mu", init="random"),
    _rust("nmf-rs-kl", "brunet"),
)
CONTESTANTS = {one.name: one for one in (*PEERS, *COUNTING)}


def contestant(text: str) -> Contestant:
    """Return a contestant by its name, or one with other options: "factormer solver=hals tol=0"."""
    name, *options = text.split()
    if name not in CONTESTANTS:
        raise SystemExit(f"there is no method {name!r}; choose of {', '.join(CONTESTANTS)}")
    one = CONTESTANTS[name]
    changed = {key: _value(value) for key, _, value in (o.partition("=") for o in options)}
    return replace(one, name=text, options=one.options | changed)


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text
