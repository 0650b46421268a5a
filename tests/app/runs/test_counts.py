"""What is known is what a mask, weights and zeros leave."""

import numpy as np
import pytest
import scipy.sparse

from factormer.app.runs.counts import Counts

V = np.array([[1.0, 0.0], [2.0, 3.0]])
MASK = np.array([[1.0, 1.0], [0.0, 1.0]])
WEIGHTS = np.array([[0.5, 2.0], [1.0, 0.0]])


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize(
    ("mask", "weights", "missing", "expected"),
    [
        (None, None, "zeros", [[1, 0], [1, 1]]),
        (MASK, None, None, [[1, 1], [0, 1]]),
        (MASK, None, "zeros", [[1, 0], [0, 1]]),
        (None, WEIGHTS, None, [[0.5, 2], [1, 0]]),
        (MASK, WEIGHTS, None, [[0.5, 2], [0, 0]]),
        (MASK, WEIGHTS, "zeros", [[0.5, 0], [0, 0]]),
    ],
)
def test_what_is_known_is_what_all_of_them_leave(as_sparse, mask, weights, missing, expected):
    form = scipy.sparse.csr_array if as_sparse else np.asarray
    given = (None if A is None else form(A) for A in (mask, weights))
    found = Counts(*given).known(form(V), missing)
    np.testing.assert_array_equal(found.toarray() if as_sparse else found, expected)


@pytest.mark.parametrize("as_sparse", [False, True])
def test_a_column_of_weights_is_of_rows(as_sparse):
    form = scipy.sparse.csr_array if as_sparse else np.asarray
    counts = Counts(weights=np.array([[0.0], [2.0]]))
    found = counts.known(form(V), "zeros")
    np.testing.assert_array_equal(found.toarray() if as_sparse else found, [[0, 0], [2, 2]])
    np.testing.assert_array_equal(counts.keywords()["weights"], [0, 2])


def test_all_is_known_where_nothing_is_said():
    assert Counts().known(V, None) is None
    assert Counts().is_empty
    assert Counts().checksum() == ""


def test_checksums_tell_masks_from_weights_and_from_others():
    given = (Counts(mask=MASK), Counts(weights=WEIGHTS), Counts(weights=MASK))
    assert len({counts.checksum() for counts in given}) == 3
    assert Counts(MASK, WEIGHTS).checksum() == Counts(MASK.copy(), WEIGHTS.copy()).checksum()
