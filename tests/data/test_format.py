"""Sparse data whose indices lead astray is refused before compiled code sees it."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from factormer import NMF, factorize
from factormer.data.format import checked
from factormer.data.intake import as_matrix
from factormer.functions import starting_point

V = np.random.default_rng(0).random((12, 10)) * (np.random.default_rng(1).random((12, 10)) < 0.5)
V[0, :3], V[1:4, 0] = 1.0, 2.0
FAR = 2**30
COMPRESSED = ("csr", "csc", "bsr")
FORMATS = (*COMPRESSED, "coo", "dia", "lil", "dok")
SENTENCE = r" is a sparse matrix that .*; build it again from its values, rows and columns"


def sparse(kind: str, flavour: str = "array") -> Any:
    return getattr(scipy.sparse, f"{kind}_{flavour}")(V)


def changed(array: Any, at: int, value: int) -> np.ndarray:
    array = array.copy()
    array[at] = value
    return array


def far(A: Any) -> None:
    name = {"coo": "row", "dia": "offsets"}.get(A.format, "indices")
    setattr(A, name, changed(getattr(A, name), 1, FAR))


def negative(A: Any) -> None:
    name = {"coo": "col", "dia": "offsets"}.get(A.format, "indices")
    setattr(A, name, changed(getattr(A, name), 1, -FAR))


def fractions(A: Any) -> None:
    if A.format == "coo":
        A.coords = (A.row + 0.5, A.col)
        return
    name = "offsets" if A.format == "dia" else "indices"
    setattr(A, name, getattr(A, name) + 0.5)


def few_values(A: Any) -> None:
    A.data = A.data[:2]


def beyond_the_end(A: Any) -> None:
    A.indptr = changed(A.indptr, -1, FAR)


def falling(A: Any) -> None:
    A.indptr = changed(A.indptr, 2, A.indptr[-1])


def late_start(A: Any) -> None:
    A.indptr = changed(A.indptr, 0, 1)


def short(A: Any) -> None:
    A.indptr = A.indptr[:-2]


def lil_far(A: Any) -> None:
    A.rows[2].append(FAR)
    A.data[2].append(1.0)


def lil_negative(A: Any) -> None:
    A.rows[2][0] = -11


def lil_uneven(A: Any) -> None:
    A.rows[2].append(3)


def lil_no_list(A: Any) -> None:
    A.rows[2] = 3


def dok_far(A: Any) -> None:
    A._dict[FAR, 0] = 1.0


def dok_negative(A: Any) -> None:
    A._dict[0, -1] = 1.0


ALL = (far, negative, fractions, few_values)
DAMAGES: list[tuple[str, Callable[[Any], None]]] = [
    *((kind, damage) for kind in (*COMPRESSED, "coo", "dia") for damage in ALL),
    *((k, d) for k in COMPRESSED for d in (beyond_the_end, falling, late_start, short)),
    *(("lil", damage) for damage in (lil_far, lil_negative, lil_uneven, lil_no_list)),
    *(("dok", damage) for damage in (dok_far, dok_negative)),
]
each_damage = pytest.mark.parametrize(
    ("kind", "damage"), DAMAGES, ids=lambda x: x if isinstance(x, str) else x.__name__
)


def damaged(kind: str, damage: Callable[[Any], None], flavour: str = "array") -> Any:
    A = sparse(kind, flavour)
    damage(A)
    return A


@pytest.mark.parametrize("flavour", ["array", "matrix"])
@pytest.mark.parametrize("kind", FORMATS)
def test_whole_data_pass_as_they_are(kind, flavour):
    A = sparse(kind, flavour)
    assert checked(A, "V") is A
    ((_, entries),) = as_matrix(A).blocks(None)
    np.testing.assert_array_equal(entries, V)


@pytest.mark.parametrize("flavour", ["array", "matrix"])
@each_damage
def test_every_damage_is_told(kind, damage, flavour):
    with pytest.raises(ValueError, match="V" + SENTENCE):
        checked(damaged(kind, damage, flavour), "V")


FITTED = NMF(2, random_state=0, max_iter=1, tol=0.0).fit(V)
ENTRIES: dict[str, Callable[[Any], Any]] = {
    "factorize": lambda A: factorize(A, 2),
    "factorize with a mask": lambda A: factorize(A, 2, mask=scipy.sparse.csr_array(V > 0)),
    "mask": lambda A: factorize(scipy.sparse.csr_array(V), 2, mask=A),
    "weights": lambda A: factorize(scipy.sparse.csr_array(V), 2, weights=A),
    "mask of dense data": lambda A: factorize(V, 2, mask=A),
    "sigma": lambda A: NMF(2).fit(scipy.sparse.csr_array(V), sigma=A),
    "start": lambda A: starting_point(A, 2),
    "fit": lambda A: NMF(2).fit(A),
    "partial_fit": lambda A: NMF(2).partial_fit(A),
    "transform": lambda A: NMF(2, random_state=0).fit(V).transform(A),
    "inverse_transform": lambda A: (
        NMF(10, random_state=0, max_iter=1, tol=0.0).fit(V[:, :8]).inverse_transform(A)
    ),
}


WORST = {"csr": beyond_the_end, "csc": far, "bsr": falling, "coo": negative}
WORST |= {"dia": far, "lil": lil_far, "dok": dok_far}


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES.keys())
@pytest.mark.parametrize("kind", FORMATS)
def test_no_entry_trusts_an_index(kind, entry):
    with pytest.raises(ValueError, match=SENTENCE):
        entry(damaged(kind, WORST[kind]))


def torch_sparse(layout: str) -> torch.Tensor:
    dense = torch.from_numpy(V)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # which calls these a beta
        if layout == "bsr":
            return dense.to_sparse_bsr((2, 5))
        return getattr(dense, "to_sparse_coo" if layout == "coo" else f"to_sparse_{layout}")()


def indices_of(A: torch.Tensor) -> list[torch.Tensor]:
    if A.layout == torch.sparse_coo:
        return [*A._indices()]
    by_rows = A.layout in (torch.sparse_csr, torch.sparse_bsr)
    starts, indices = ("crow", "col") if by_rows else ("ccol", "row")
    return [getattr(A, f"{name}_indices")() for name in (starts, indices)]


@pytest.mark.parametrize("value", [FAR, -FAR])
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr"])
@pytest.mark.parametrize("entry", ["factorize", "mask", "fit", "start"])
def test_tensors_are_not_trusted_either(layout, which, value, entry):
    A = torch_sparse(layout)
    ((_, entries),) = as_matrix(A).blocks(None)
    np.testing.assert_array_equal(entries, V)
    indices_of(A)[which][2] = value
    with pytest.raises(ValueError, match=SENTENCE):
        ENTRIES[entry](A)


def test_tensor_with_a_dense_axis_is_refused_with_a_sentence():
    with pytest.raises(ValueError, match="V is a sparse tensor with 1 dense axes; both must be"):
        as_matrix(torch.from_numpy(V).to_sparse(1))


def test_more_columns_than_can_be_counted_are_refused_with_a_sentence():
    for make in (scipy.sparse.csr_array, scipy.sparse.coo_array):
        with pytest.raises(ValueError, match=r"V is sparse and has shape .* at most 2147483647"):
            factorize(make((2, 2**31)), 1)
    with pytest.raises(ValueError, match="V is sparse and has shape"):
        as_matrix(scipy.sparse.coo_array((2**40, 2)))


def test_what_lies_beyond_the_end_does_not_count():
    A = sparse("csr")
    A.indices = np.concatenate([A.indices, [FAR]])
    A.data = np.concatenate([A.data, [np.nan]])
    assert float(as_matrix(A).total()) == pytest.approx(V.sum())


def test_a_flag_of_order_is_not_believed():
    A = sparse("csr")
    A.sum_duplicates()
    A.indices[:2] = A.indices[0]  # twice the same place, behind the flag's back
    assert A.has_canonical_format
    expected = float(((A.toarray()) ** 2).sum())
    assert float(as_matrix(A).sq_norm()) == pytest.approx(expected)
