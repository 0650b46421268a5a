"""Whatever holds numbers comes in; whatever does not gets a sentence: value, allowed, remedy."""

import math

import numpy as np
import pytest
import scipy.sparse
import torch

from factormer import factorize
from factormer.data import Dense, Sparse
from factormer.data.intake import as_device, as_factors, as_matrix, as_tensor, check_mean

VALUES = [[1.0, 2.0, 3.0], [4.0, 0.0, 6.0]]
V = np.array(VALUES)


def with_entry(value: float) -> np.ndarray:
    changed = V.copy()
    changed[1, 1] = value
    return changed


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


# What comes in


@pytest.mark.parametrize(
    "values",
    [
        V,
        VALUES,
        tuple(map(tuple, VALUES)),
        torch.tensor(VALUES),
        torch.tensor(VALUES, dtype=torch.float64),
        torch.tensor(VALUES, dtype=torch.bfloat16),
        torch.tensor(VALUES, dtype=torch.int16),
        *(V.astype(kind) for kind in ("f4", "f2", ">f8", ">f4", "g", "u1", "i2", "i8", ">i4")),
        np.asfortranarray(V),
        V.T.copy().T,
        np.repeat(V, 2, axis=0)[::2],
        V[:, ::-1].copy()[:, ::-1],
        read_only(V),
    ],
    ids=lambda values: f"{type(values).__name__}-{getattr(values, 'dtype', '')}",
)
def test_matrix_has_the_entries_that_came_in(values):
    matrix = as_matrix(values)
    assert matrix.dtype in (torch.float32, torch.float64)
    assert isinstance(matrix, Dense)
    assert matrix.entries.tolist() == VALUES


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (np.float32, torch.float32),
        (np.float64, torch.float64),
        (np.float16, torch.float64),
        (np.int32, torch.float64),
        (np.bool_, torch.float64),
    ],
)
def test_single_precision_stays_and_all_else_is_double(kind, expected):
    array = V.astype(kind)
    assert as_tensor(array, name="V", device=None).dtype is expected
    assert as_tensor(torch.from_numpy(array), name="V", device=None).dtype is expected


def test_device_that_is_there_is_taken():
    assert as_device("cpu") == torch.device("cpu")
    assert as_matrix(V, device="cpu").device.type == "cpu"


def read_only_csr() -> scipy.sparse.csr_array:
    csr = scipy.sparse.csr_array(V)
    return scipy.sparse.csr_array(
        (read_only(csr.data), read_only(csr.indices), read_only(csr.indptr)), csr.shape
    )


@pytest.mark.parametrize(
    "values",
    [
        *(
            scipy.sparse.coo_array(V).asformat(f)
            for f in ("csr", "csc", "coo", "lil", "dok", "bsr")
        ),
        scipy.sparse.csr_matrix(V),
        *(scipy.sparse.csr_array(V.astype(kind)) for kind in ("f4", "u1", "i8", "g")),
        read_only_csr(),
        *(torch.tensor(VALUES, dtype=t).to_sparse() for t in (torch.float32, torch.bfloat16)),
    ],
    ids=lambda values: f"{type(values).__name__}-{values.dtype}",
)
def test_sparse_matrix_has_the_entries_that_came_in(values):
    matrix = as_matrix(values)
    assert isinstance(matrix, Sparse)
    ((_, entries),) = matrix.blocks(None)
    assert entries.tolist() == VALUES
    assert matrix.dtype in (torch.float32, torch.float64)


def test_stack_of_matrices_comes_in():
    assert as_matrix(np.stack([V, V])).shape == (2, 2, 3)


# What does not


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (with_entry(-2.5), r"V has 1 entries below zero \(the least is -2.5\).* at least 0: shift"),
        (with_entry(math.nan), "V has 1 entries that are NaN or infinite; all must be finite: rem"),
        (with_entry(math.inf), "V has 1 entries that are NaN or infinite; all must be finite: rem"),
        (with_entry(-math.inf), "V has 1 entries that are NaN or infinite"),
        (np.full((2, 3), math.nan), "V has 6 entries that are NaN"),
        (V.astype(complex), "V holds complex128 values; it must hold real numbers"),
        (torch.tensor(VALUES, dtype=torch.complex64), "V holds complex values; it must hold real"),
        ([["a", "b"]], "V holds <U1 values; it must hold real numbers"),
        (None, "V holds object values; it must hold real numbers"),
        (V[0], r"V has shape \(3,\); it must be a matrix .* at least one row and one column"),
        (3.0, r"V has shape \(\); it must be a matrix"),
        (V[:0], r"V has shape \(0, 3\); it must be a matrix .* at least one row and one column"),
        (V[:, :0], r"V has shape \(2, 0\); it must be a matrix"),
        ([], r"V has shape \(0,\); it must be a matrix"),
        (scipy.sparse.csr_array(with_entry(-2.5)), "V has 1 entries below zero"),
        (scipy.sparse.csr_array(with_entry(math.nan)), "V has 1 entries that are NaN or infinite"),
        (scipy.sparse.csr_array(V.astype(complex)), "V holds complex128 values; it must hold real"),
        (scipy.sparse.coo_array(V[0]), r"V is sparse and has shape \(3,\); .* must be one matrix"),
        (scipy.sparse.csr_array((0, 3)), r"V has shape \(0, 3\); it must be a matrix"),
        (torch.ones(2, 2, 3).to_sparse(), r"V is sparse and has shape \(2, 2, 3\)"),
    ],
)
def test_what_is_no_matrix_of_data_is_refused_with_a_sentence(values, sentence):
    with pytest.raises(ValueError, match=sentence):
        as_matrix(values)


@pytest.mark.parametrize("device", ["gpu", "cuda:99", ""])
def test_device_that_is_not_there_is_refused_with_a_sentence(device):
    with pytest.raises(ValueError, match=rf"device is '{device}', which is not .*; choose 'cpu'"):
        as_device(device)


@pytest.mark.parametrize("mean", [math.inf, math.nan, 1e-320])
def test_matrix_whose_mean_is_out_of_range_is_refused_with_a_sentence(mean):
    with pytest.raises(
        ValueError, match=r"V is too large or too small for torch.float64 .* divide"
    ):
        check_mean(torch.tensor([1.0, mean], dtype=torch.float64))


@pytest.mark.parametrize(
    ("W", "H", "sentence"),
    [
        (np.ones((2, 2)), np.ones((2, 3)), r"H has shape \(2, 3\); .* shape \(3, 2\) .*H is n×r"),
        (np.ones((3, 2)), np.ones((3, 2)), r"W has shape \(3, 2\); .* must have shape \(2, 2\)"),
        (np.ones((2, 3)), np.ones((3, 3)), r"W has shape \(2, 3\); for this V and rank 2 the sta"),
        (-np.ones((2, 2)), np.ones((3, 2)), "W has 4 entries below zero"),
        (np.ones((2, 2)), np.full((3, 2), math.nan), "H has 6 entries that are NaN"),
        (None, np.ones((3, 2)), "W is missing; a start is given by both W and H"),
        (np.ones((2, 2)), None, "H is missing; a start is given by both W and H"),
    ],
)
def test_start_that_does_not_fit_is_refused_with_a_sentence(W, H, sentence):
    with pytest.raises(ValueError, match=sentence):
        as_factors(W, H, as_matrix(V), 2)


def test_start_takes_the_precision_of_the_matrix():
    single = Dense(torch.tensor(VALUES))
    x = as_factors(np.ones((2, 2)), np.ones((3, 2)), single, 2)
    assert (x.W.dtype, x.H.dtype) == (torch.float32, torch.float32)


@pytest.mark.parametrize("most", [np.float32(1e-45), np.float32(1e-38), 1e-323, 2e-308])
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_data_without_digits_is_refused_with_a_sentence(most, form):
    V = np.full((3, 2), most)
    V[0] = 0
    with pytest.raises(ValueError, match=r"as its largest entry; .* multiply V by"):
        as_matrix(form(V))


def test_data_of_zeros_are_no_data_without_digits():
    assert factorize(np.zeros((3, 2), np.float32), 1).rmse == 0


def test_known_data_without_digits_are_refused_too():
    V = np.full((4, 3), 1e-45, np.float32)
    V[0, 0] = np.nan
    with pytest.raises(ValueError, match=r"as its largest entry; .* multiply V by"):
        factorize(V, 1)


def test_a_start_beyond_the_precision_in_the_unit_of_v_is_refused_or_brought_to_it():
    V, F = np.full((3, 2), 1e-5, np.float32), np.full((3, 1), 1e38, np.float32)
    start = {"init": "custom", "W": F, "H": F[:2]}
    for loss in ("frobenius", "kullback-leibler"):
        assert factorize(V, 1, loss=loss, **start).rmse < 1e-10
    with pytest.raises(ValueError, match="start W is too large relative to V"):
        factorize(V, 1, loss="kullback-leibler", engine="reference", **start)


def test_masked_entries_are_not_known():
    V = np.random.default_rng(0).random((8, 6))
    hidden = np.zeros(V.shape, bool)
    hidden[2, 3] = True
    masked = np.ma.MaskedArray(np.where(hidden, 1e6, V), hidden)
    gaps = np.where(hidden, np.nan, V)
    np.testing.assert_array_equal(factorize(masked, 2).W, factorize(gaps, 2).W)
    assert factorize(np.ma.MaskedArray(V), 2).rmse == factorize(V, 2).rmse


@pytest.mark.parametrize("device", [["cpu", "cpu"], "gpus", 3])
def test_several_devices_are_for_many_problems(device):
    with pytest.raises(ValueError, match="must be one device here"):
        as_device(device)
