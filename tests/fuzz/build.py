"""From a specification to the arrays and options it stands for, the same on each machine."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse
import torch

from factormer import penalties
from factormer.problem.losses import NAMES
from tests.fuzz.specs import SPARSE, Spec

UNREADABLE = ("one-axis", "complex", "text", "empty")


@dataclass
class Case:
    """An input as it is handed over, and what it stands for in float64."""

    spec: Spec
    V: Any
    A: np.ndarray  # (m, n), NaN where V has it
    rng: np.random.Generator
    eps: float
    dtype: np.dtype
    counts: dict[str, Any] = field(default_factory=dict)  # mask, weights, sigma, missing
    omega: np.ndarray | None = None
    start: tuple[np.ndarray, np.ndarray] | None = None
    on_w: list[Any] = field(default_factory=list)
    on_h: list[Any] = field(default_factory=list)

    @property
    def beta(self) -> float:
        loss = self.spec.get("loss", "frobenius")
        return NAMES[loss] if isinstance(loss, str) else float(loss)

    @property
    def rank(self) -> int:
        return self.spec["rank"]

    @property
    def is_sparse(self) -> bool:
        return self.spec["data"]["layout"] in SPARSE

    @property
    def is_malformed(self) -> bool:
        """Whether V is sparse and its indices lie."""
        data, kind = self.spec["data"], str(self.spec["data"].get("flaw"))
        coo = data["layout"].startswith("coo")
        by_lines = data["layout"][:3] in ("csr", "csc", "bsr")
        lies = kind.startswith("index-") or kind == "data-short"
        torches = data["layout"] == "torch-coo" and kind.startswith("index-")
        marked = (coo and lies) or (by_lines and (lies or kind.startswith("indptr-"))) or torches
        return marked and bool((self.A != 0).any())

    @property
    def arrays(self) -> list[np.ndarray]:
        """Every array that a call is given, and must leave alone."""
        given = [self.V, *self.counts.values(), *(self.start or ())]
        return [array for one in given for array in _arrays(one)]


def case_of(spec: Spec) -> Case:
    """All that the specification says, made."""
    told, rng = spec["data"], np.random.default_rng(spec["seed"])
    A = values(told, rng)
    if spec.get("symmetric"):
        A = (A + A.T) / 2
    A = _typed(_to_scale(A, told["exponent"], told["dtype"]), told["dtype"])
    flaw = told.get("flaw")
    if flaw in ("nan", "inf", "-inf", "negative", "all-nan") and A.dtype.kind == "f":
        bad = {"nan": np.nan, "all-nan": np.nan, "inf": np.inf, "-inf": -np.inf, "negative": -1}
        places = ... if flaw == "all-nan" else (rng.integers(len(A)), rng.integers(A.shape[1]))
        A[places] = bad[flaw]
    if spec.get("known") == "nan" and A.dtype.kind == "f" and told["layout"] not in SPARSE:
        A[rng.random(A.shape) < 0.2] = np.nan
    wide = told["layout"] == "list" or flaw == "text"  # in which numbers are float64
    single = A.dtype == np.float32 and not wide
    dtype = np.dtype(np.float32 if single else np.float64)
    exact = A.astype(np.float64)
    V = _unreadable(A, flaw) if flaw in UNREADABLE else laid_out(A, told["layout"], flaw, rng)
    if flaw == "explicit-zeros" and scipy.sparse.issparse(V):
        exact = V.toarray().astype(np.float64)  # one entry fewer
    case = Case(spec, V, exact, rng, float(np.finfo(dtype).eps), dtype)
    _say_what_counts(case)
    if spec.get("init") == "custom":
        case.start = _start(case)
    case.on_w = [_penalty(term, A.shape[0], case) for term in spec.get("on_w", ())]
    case.on_h = [_penalty(term, A.shape[1], case) for term in spec.get("on_h", ())]
    return case


def values(told: Spec, rng: np.random.Generator) -> np.ndarray:
    """Entries of about 1."""
    m, n, k = told["m"], told["n"], told["true_rank"]
    low = rng.random((m, k)) @ rng.random((k, n))
    match told["kind"]:
        case "heavy":
            A = rng.exponential(size=(m, n)) ** 3
        case "low-rank":
            A = low
        case "duplicated":
            A = low[:, rng.integers(0, max(1, n // 2), n)]
        case "dependent":
            parts = rng.random((m, 1)) + 1e-8 * rng.random((m, k))
            A = parts @ rng.random((k, n))
        case "constant":
            A = np.ones((m, n))
        case "counts":
            A = rng.poisson(5 * low).astype(float)
        case "spike":
            A = rng.random((m, n))
            A[rng.integers(m), rng.integers(n)] = 10.0 ** rng.integers(3, 15)
        case "wide-range":
            A = 10.0 ** rng.uniform(-12, 12, (m, n))
        case "zero-lines":
            A = low * (rng.random((m, 1)) < 0.6) * (rng.random(n) < 0.6)
        case "diagonal":
            A = np.eye(m, n)
        case "binary":
            A = (rng.random((m, n)) < 0.5).astype(float)
        case "smooth":
            A = np.abs(np.sin(np.arange(m)[:, None] / 5 + np.arange(n) / 7))
        case _:
            A = rng.random((m, n))
    A = np.where(rng.random((m, n)) < told["zeros"], 0.0, A)
    return np.where(A > 0, A, 0.1) if told.get("positive") else A


def _to_scale(A: np.ndarray, exponent: int, dtype: str) -> np.ndarray:
    """A times a power of ten, as far as the type goes."""
    kind = np.dtype("f8" if dtype == "longdouble" else dtype)
    if kind.kind == "b":
        return A
    if kind.kind in "iu":
        top = np.iinfo(kind).max
        return np.clip(np.round(A * 10.0 ** min(max(exponent, 0), 9)), 0, float(top // 2))
    info = np.finfo(kind)
    big = A.astype(np.longdouble) * np.longdouble(10) ** exponent
    return np.clip(big, 0, np.longdouble(info.max) / 4)


def _typed(A: np.ndarray, dtype: str) -> np.ndarray:
    with np.errstate(under="ignore", over="ignore"):
        return np.ascontiguousarray(A.astype(dtype))


def _unreadable(A: np.ndarray, flaw: str) -> Any:
    match flaw:
        case "one-axis":
            return A[0]
        case "complex":
            return A + 1j
        case "text":
            return A.astype(np.float64).astype(str)  # with all digits of what it stands for
    return A[:0]


def laid_out(A: np.ndarray, layout: str, flaw: str | None, rng: np.random.Generator) -> Any:
    """Return the numbers as users may have them."""
    native = A.astype(A.dtype.newbyteorder("="))
    if layout in SPARSE:
        return _sparse(native, layout, flaw, rng)
    match layout:
        case "F":
            return np.asfortranarray(A)
        case "strided":
            wide = np.zeros((A.shape[0], 2 * A.shape[1]), A.dtype)
            wide[:, ::2] = A
            return wide[:, ::2]
        case "reversed":
            return np.ascontiguousarray(A[::-1, ::-1])[::-1, ::-1]
        case "readonly":
            A.flags.writeable = False
            return A
        case "view":
            return np.vstack([A, A])[: len(A)]
        case "list":
            return A.tolist()
        case "tensor" | "tensor-T" if A.dtype != np.longdouble:
            tensor = torch.from_numpy(native)
            return tensor if layout == "tensor" else tensor.T.contiguous().T
    return A


def _sparse(A: np.ndarray, layout: str, flaw: str | None, rng: np.random.Generator) -> Any:
    if A.dtype in (np.float16, np.longdouble):
        A = A.astype(np.float64)
    if layout.startswith("torch"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _torch_sparse(A, layout, flaw)
    if layout.endswith("_array"):
        S = getattr(scipy.sparse, layout)(A)
    else:
        S = getattr(scipy.sparse, f"{layout}_matrix")(A)
    if flaw is None or S.format not in ("csr", "csc", "coo", "bsr") or not S.nnz:
        return S
    return _flawed(S, flaw, rng)


def _flawed(S: Any, flaw: str, rng: np.random.Generator) -> Any:
    """Indices that lie, or are merely unusual; set after scipy has looked at them."""
    if S.format == "coo":
        index, extent = S.col, S.shape[1]
    else:
        index, extent = S.indices, S.shape[0 if S.format == "csc" else 1]
    at = rng.integers(len(index))
    match flaw:
        case "index-high":
            index[at] = extent
        case "index-negative":
            index[at] = -1
        case "index-huge":
            index[at] = 2**30
        case "data-short":
            S.data = S.data[:-1]
        case "indptr-short" if S.format != "coo":
            S.indptr = S.indptr[:-1]
        case "indptr-down" if S.format != "coo":
            S.indptr[len(S.indptr) // 2] = S.indptr[-1] + 7
        case "indptr-end" if S.format != "coo":
            S.indptr[-1] += 1000
        case "unsorted" if S.format in ("csr", "csc"):
            for a, b in zip(S.indptr[:-1], S.indptr[1:], strict=True):
                S.indices[a:b], S.data[a:b] = S.indices[a:b][::-1].copy(), S.data[a:b][::-1].copy()
            S.has_sorted_indices = False
        case "duplicates" if S.format == "coo" and S.dtype.kind == "f":
            half = (S.data / 2).repeat(2)
            S = type(S)((half, (S.row.repeat(2), S.col.repeat(2))), shape=S.shape)
        case "explicit-zeros" if S.format in ("csr", "csc"):
            S.data[at] = 0
        case "long-indices" if S.format in ("csr", "csc"):
            S.indices, S.indptr = S.indices.astype(np.int64), S.indptr.astype(np.int64)
    return S


def _torch_sparse(A: np.ndarray, layout: str, flaw: str | None) -> Any:
    dense = torch.from_numpy(A)
    if layout == "torch-csr":
        return dense.to_sparse_csr()
    if layout == "torch-csc":
        return dense.to_sparse_csc()
    coo = dense.to_sparse_coo()
    if flaw in ("index-high", "index-negative", "index-huge") and coo._nnz():
        at, to = coo._indices().clone(), {"index-high": A.shape[1], "index-negative": -1}
        at[1, 0] = to.get(flaw, 2**40)
        return torch.sparse_coo_tensor(
            at, coo._values(), coo.shape, check_invariants=False, is_coalesced=True
        )
    return coo


def _say_what_counts(case: Case) -> None:
    """Mask, weights, standard deviations, and the ω that they stand for."""
    spec, A, rng = case.spec, case.A, case.rng
    kind, unit = spec.get("known"), 10.0 ** spec.get("weight_exponent", 0)
    sparse = spec["data"]["layout"] in SPARSE
    if kind is None:
        return
    if kind == "nan":
        case.omega = 1.0 - np.isnan(A)
    elif kind == "zeros":
        case.counts, case.omega = {"missing": "zeros"}, (A != 0) & ~np.isnan(A)
    elif kind == "row-weights":
        rows = rng.random(len(A)) * unit
        case.counts, case.omega = {"weights": rows}, np.repeat(rows[:, None], A.shape[1], axis=1)
    else:
        size = 1.0 if kind == "mask" else rng.random(A.shape) * unit
        omega = (rng.random(A.shape) < 0.8) * size
        given: Any = omega.astype(bool) if kind == "mask" else omega
        if kind == "sigma":
            omega = 1 / (given := rng.uniform(0.1, 3, A.shape) * np.sqrt(unit)) ** 2
        case.counts, case.omega = {kind: scipy.sparse.csr_array(given) if sparse else given}, omega
    assert case.omega is not None
    case.omega = np.where(np.isnan(A), 0.0, case.omega).astype(case.dtype).astype(float)


def _start(case: Case) -> tuple[np.ndarray, np.ndarray]:
    (m, n), rng = case.A.shape, case.rng
    exponent, zeros = case.spec["start"]
    with np.errstate(over="ignore"):
        level = float(np.nanmean(np.where(np.isfinite(case.A), case.A, 0))) if case.A.size else 1.0
    unit = np.longdouble(np.sqrt(max(level, 1e-300))) * np.longdouble(10) ** exponent
    pair = []
    for size in (m, n):
        F = rng.random((size, case.rank)) * (rng.random((size, case.rank)) >= zeros)
        limit = np.longdouble(np.finfo(case.dtype).max) / 4
        pair.append(np.minimum(F * unit, limit).astype(case.dtype))
    return pair[0], pair[1]


def _penalty(term: list[Any], size: int, case: Case) -> Any:
    name, *arguments = term
    if name != "Fixed":
        return getattr(penalties, name)(*arguments)
    k = min(arguments[0], case.rank)
    A = np.nan_to_num(case.A, posinf=1).clip(0).astype(np.longdouble)  # its sum may be beyond float
    unit = np.sqrt(float(A.mean()) or 1.0)
    at = np.arange(case.rank) < k
    return penalties.Fixed((unit * case.rng.random((size, k))).astype(case.dtype), at)


def _arrays(given: Any) -> list[np.ndarray]:
    if isinstance(given, np.ndarray):
        return [given]
    if isinstance(given, torch.Tensor):
        if given.layout is torch.strided:
            return [given.numpy()]
        if given.layout is torch.sparse_coo:
            return [given._indices().numpy(), given._values().numpy()]
        return [given.values().numpy()]
    names = ("data", "indices", "indptr", "row", "col", "offsets")
    found = [getattr(given, name, None) for name in names]
    return [array for array in found if isinstance(array, np.ndarray)]
