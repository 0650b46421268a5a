"""Whatever is passed is factorized or refused in a sentence, and is never written."""

import numpy as np
import pytest
import scipy.sparse as sp

from tests.core.lanes import as_array, core, given, kinds, one, planted, rmse, run

V = planted(12, 9, 3)
CSR = sp.csr_matrix(np.where(np.median(V) < V, V, 0))
STARTS = CSR.indptr.astype(np.int64)


PARTS = ("m", "n", "starts", "indices", "data", "starts of columns", "rows", "again")


def sparse(**changed):
    parts = dict(zip(PARTS, given(CSR)[1:], strict=True)) | changed
    return ("sparse", *parts.values())


def with_entry(value, dtype: type = float):
    W = V.astype(dtype)
    W[3, 4] = value
    return W


def unaligned():
    return np.frombuffer(b"x" + V.tobytes(), offset=1).reshape(V.shape)


REFUSED = {
    "NaN": (with_entry(np.nan), "NaN or infinite"),
    "infinity": (with_entry(np.inf), "NaN or infinite"),
    "negative": (with_entry(-1e-3), "negative"),
    "NaN in float32": (with_entry(np.nan, np.float32), "NaN or infinite"),
    "infinity in float32": (with_entry(np.inf, np.float32), "NaN or infinite"),
    "integers": (np.ones((3, 3), int), "float64 or float32"),
    "complex": (np.ones((3, 3), complex), "float64 or float32"),
    "half": (np.ones((3, 3), np.float16), "float64 or float32"),
    "bytes swapped": (V.astype(">f8"), "byte order"),
    "objects": (np.ones((3, 3), object), "not an array"),
    "a list": ([[1.0, 2.0]], "not an array"),
    "None": (None, "not an array"),
    "one axis": (V[0], "has 1 axes"),
    "three axes": (V[None], "has 3 axes"),
    "every second column": (V[:, ::2], "by rows or by columns"),
    "rows backwards": (V[::-1], "by rows or by columns"),
    "broadcast": (np.broadcast_to(V[0], (12, 9)), "by rows or by columns"),
    "overlapping": (np.lib.stride_tricks.sliding_window_view(V[0], 4), "by rows or by columns"),
    "unaligned": (unaligned(), "not aligned"),
    "an empty tuple": ((), "is a tuple"),
    "a wrong tuple": (("coo", 1, 2), "is a tuple"),
    "starts too short": (sparse(starts=STARTS[:-1]), "starts has to begin with 0 and"),
    "starts from 1": (sparse(starts=STARTS + 1), "begin with 0"),
    "starts fall": (sparse(starts=np.r_[0, 5, 3, STARTS[3:]]), "falls"),
    "starts too far": (sparse(starts=np.r_[STARTS[:-1], 10**6]), "beyond the end"),
    "starts too far by 2^40": (sparse(starts=np.r_[STARTS[:-1], 2**40]), "beyond the end"),
    "starts of floats": (sparse(starts=STARTS.astype(float)), "another type"),
    "starts in steps": (sparse(starts=np.repeat(STARTS, 2)[::2]), "gaps"),
    "index too large": (sparse(indices=CSR.indices + np.int32(1)), "out of range"),
    "index negative": (sparse(indices=CSR.indices - np.int32(1)), "out of range"),
    "indices of int64": (sparse(indices=CSR.indices.astype(np.int64)), "another type"),
    "data too short": (sparse(data=CSR.data[:-1]), "beyond the end"),
    "data of float32": (sparse(data=CSR.data.astype(np.float32)), "another type"),
    "data of integers": (sparse(data=CSR.data.astype(int)), "another type"),
    "a row too large": (sparse(rows=np.full_like(given(CSR)[7], 12)), "out of range"),
    "fewer entries by columns": (
        sparse(**{"starts of columns": 0 * given(CSR)[6]}),
        "other entries",
    ),
    "sparse NaN": (sparse(data=np.full_like(CSR.data, np.nan)), "NaN or infinite"),
    "sparse negative": (sparse(data=-1.0 * CSR.data), "negative"),
    "too many rows": (sparse(m=2**31), "fewer than"),
    "negative size": (sparse(m=-1), "fewer than"),
    "size no number": (sparse(m="12"), "fewer than"),
    "low rank of two ranks": (("low-rank", V[:, :3], V[:9, :4]), "same number of columns"),
    "low rank with NaN": (("low-rank", with_entry(np.nan), V), "NaN or infinite"),
    "low rank of integers": (
        ("low-rank", np.ones((3, 2), int), np.ones((4, 2))),
        "float64 or float32",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_matrix_that_does_not_fit_is_refused(case):
    matrix, sentence = REFUSED[case]
    with pytest.raises(ValueError, match=sentence):
        core.run([V, matrix], [0, 1], [2, 2], [0, 0])


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ({"max_iter": -1}, "max_iter"),
        ({"max_iter": 2**40}, "max_iter"),
        ({"tol": -1.0}, "tol"),
        ({"tol": np.nan}, "tol"),
        ({"seconds": -1.0}, "seconds"),
        ({"seconds": np.nan}, "seconds"),
        ({"l1": (0.0, -1.0)}, "l1"),
        ({"l2": (np.nan, 0.0)}, "l2"),
        ({"pull": -1.0}, "pull"),
        ({"pull": 1.0}, "square"),
        ({"max_sweeps": 0}, "max_sweeps"),
        ({"threads": -1}, "threads"),
        ({"threads": 10**6}, "threads"),
        ({"precision": "float16"}, "'float64', 'mixed', 'float32'"),
        ({"finish": "all"}, "'none', 'sweeps', 'exact'"),
        ({"scale": ""}, "'none', 'balanced', 'sum'"),
        ({"starts": []}, "one entry for each lane"),
        ({"starts": [(V, V, V)]}, "a pair of W and H"),
        ({"starts": [(np.ones((12, 3)), np.ones((9, 2)))]}, "start of W has shape"),
        ({"starts": [(-np.ones((12, 2)), np.ones((9, 2)))]}, "negative, NaN or infinite"),
        ({"starts": [(np.ones((12, 2)), np.full((9, 2), np.nan))]}, "start of H holds"),
        ({"fixed": [([0], [])]}, "need a start"),
        ({"starts": [(np.ones((12, 2)), np.ones((9, 2)))], "fixed": [([2], [])]}, "no component 2"),
        (
            {"starts": [(np.ones((12, 2)), np.ones((9, 2)))], "fixed": [([-1], [])]},
            "no component -1",
        ),
    ],
    ids=str,
)
def test_a_rule_that_makes_no_sense_is_refused(rules, sentence):
    with pytest.raises(ValueError, match=sentence):
        core.run([V], [0], [2], [0], **rules)


@pytest.mark.parametrize(
    ("index", "ranks", "seeds", "sentence"),
    [
        ([1], [2], [0], "no matrix 1"),
        ([-1], [2], [0], "no matrix -1"),
        ([0], [0], [0], "the rank is 0"),
        ([0], [10**9], [0], "the rank is"),
        ([0, 0], [2], [0], "one length"),
        ([0], [2], [], "one length"),
    ],
)
def test_a_lane_that_makes_no_sense_is_refused(index, ranks, seeds, sentence):
    with pytest.raises(ValueError, match=sentence):
        core.run([V], index, ranks, seeds)


def test_no_lane_is_no_result():
    assert [len(part) for part in core.run([], [], [], [])] == [0, 0, 0, 0]
    assert [len(part) for part in core.run([V], [], [], [])] == [0, 0, 0, 0]


def test_read_only_arrays_are_taken_and_nothing_is_written():
    for kind, matrix in kinds().items():
        whole = given(matrix)
        parts = whole if isinstance(whole, tuple) else [whole]
        arrays = [part for part in parts if isinstance(part, np.ndarray)]
        for array in arrays:
            array.flags.writeable = False
        before = [array.copy() for array in arrays]
        one(matrix, 3, max_iter=10, precision="mixed")
        for array, copy in zip(arrays, before, strict=True):
            np.testing.assert_array_equal(array, copy, err_msg=kind)


def test_a_start_may_alias_the_matrix_and_is_not_written():
    W = V.copy()
    found = one(W, 9, start=(W, np.eye(9)), max_iter=10)
    np.testing.assert_array_equal(W, V)
    assert not np.shares_memory(found.W, W)


def test_a_start_may_lie_in_memory_as_it_likes():
    rng = np.random.default_rng(0)
    W, H = rng.random((12, 3)), rng.random((9, 3))
    plain = one(V, 3, start=(W, H), max_iter=5).bits()
    strided = np.repeat(np.repeat(W, 2, axis=0), 3, axis=1)[::2, ::3]
    assert one(V, 3, start=(strided, np.asfortranarray(H)), max_iter=5).bits() == plain
    assert one(V, 3, start=(W[::-1][::-1], H), max_iter=5).bits() == plain


def test_memory_that_is_not_there_is_a_memory_error():
    with pytest.raises((MemoryError, ValueError)):
        core.run([np.zeros((0, 2**31))], [0], [10**6], [0])
    with pytest.raises((MemoryError, ValueError)):
        core.run([np.ones((1, 10**6))], [0], [10**6], [0])


@pytest.mark.parametrize("scale", [1e-300, 1e-170, 1e-30, 1e30, 1e150, 1e300])
@pytest.mark.parametrize("kind", kinds())
def test_the_scale_of_v_does_not_matter(kind, scale):
    matrix = kinds()[kind]
    if "32" in kind:
        scale = np.float32(min(max(scale, 1e-30), 1e30))
    if isinstance(matrix, tuple):
        scaled = (matrix[0], matrix[1] * scale, matrix[2])
    else:
        scaled = matrix * scale
    plain, found = one(matrix, 4, max_iter=20, tol=0), one(scaled, 4, max_iter=20, tol=0)
    assert found.status == plain.status
    assert found.error / float(scale) == pytest.approx(plain.error, rel=1e-3)
    assert np.isfinite(found.W).all()
    fit = (found.W / np.sqrt(float(scale))) @ (found.H / np.sqrt(float(scale))).T
    np.testing.assert_allclose(fit, plain.W @ plain.H.T, rtol=0.05, atol=1e-2)


@pytest.mark.parametrize("scale", ["sum", "balanced", "none"])
def test_components_that_vanish_beside_others_stay_finite(scale):
    """One entry is all of V, so that sums of components end at the least of numbers."""
    rules = {"tol": 0.0, "precision": "mixed", "scale": scale, "order": False, "finish": "none"}
    for k in range(60):
        rng = np.random.default_rng(k)
        V = rng.random((int(rng.integers(2, 40)), 3)) * 10.0 ** rng.integers(-3, 4)
        V[rng.integers(len(V)), 1] = 1.7e308
        for max_iter in (0, 1, 2, 5):
            found = one(V, 9, k, max_iter=max_iter, **rules)
            assert np.isfinite(found.W).all()
            assert np.isfinite(found.H).all()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("precision", ["float64", "mixed", "float32"])
def test_a_ragged_list_of_odd_problems(threads, precision):
    rng = np.random.default_rng(0)
    problems = [
        *(np.zeros(shape) for shape in [(0, 5), (5, 0), (0, 0), (1, 1), (7, 6)]),
        *(rng.random(shape) for shape in [(1, 9), (9, 1), (4, 3)]),
        *(1e-170 * rng.random((8, 9)), 1e150 * rng.random((9, 8)), 5e-324 * np.ones((3, 3))),
        *(np.ones((1, 1)), np.diag([1e-100, 1.0, 1e100]), np.eye(20)),
        *(sp.csr_matrix((6, 5)), sp.csc_matrix((0, 4)), sp.eye(30, format="csr")),
        *(np.ones((50, 40), np.float32), 1e-40 * np.ones((3, 4), np.float32)),
        *(("low-rank", np.zeros((5, p)), np.ones((4, p))) for p in (2, 0)),
        *(rng.random(rng.integers(1, 40, 2)) for _ in range(20)),
    ]
    ranks = [int(r) for r in rng.integers(1, 12, len(problems))]
    rules = {"threads": threads, "precision": precision, "max_iter": 30}
    found = run(problems, list(range(len(problems))), ranks, range(len(problems)), **rules)
    for V, r, f in zip(problems, ranks, found, strict=True):
        dense = as_array(V)
        assert f.W.shape == (dense.shape[0], r)
        assert f.H.shape == (dense.shape[1], r)
        assert np.isfinite(f.W).all()
        assert np.isfinite(f.H).all()
        assert (f.W >= 0).all()
        assert (f.H >= 0).all()
        assert f.status in ("CONVERGED", "MAX_ITER")
        if dense.size:
            size = np.abs(dense).max()
            if 1e-150 < size < 1e99:
                assert f.error == pytest.approx(rmse(V, f), rel=1e-3, abs=1e-5 * size)
            assert f.error <= np.sqrt(np.mean((dense / (size or 1)) ** 2)) * size * (1 + 1e-6)
