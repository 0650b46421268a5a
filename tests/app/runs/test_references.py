"""Components beside references: by labels in any order, by number, and with a sentence if wrong."""

import numpy as np
import pytest

from factormer.app.read import Axis, Data
from factormer.app.runs.references import compared, references

RNG = np.random.default_rng(0)
KNOWN = RNG.uniform(0.1, 1, (6, 3))
GENES = tuple("abcdef")


def data_of(V: np.ndarray, rows=None, columns=None) -> Data:
    m, n = V.shape
    return Data(V, Axis(m, "row", labels=rows), Axis(n, "gene", labels=columns), "known", "")


DATA = data_of(np.ones((9, 6)), columns=GENES)


def test_labels_decide_the_order():
    turned = data_of(KNOWN[::-1], rows=GENES[::-1], columns=("x", "y", "z"))
    for found in (turned, turned.transposed()):
        reference = references(found, DATA)
        assert reference.side == "columns"
        assert reference.names == ("x", "y", "z")
        np.testing.assert_array_equal(reference.values, KNOWN)


def test_sizes_decide_where_there_are_no_labels():
    assert references(data_of(KNOWN), DATA).values.shape == (6, 3)
    assert references(data_of(np.ones((2, 9))), DATA).side == "rows"


def test_pairs_are_one_to_one_and_the_nearest_is_told():
    reference = references(data_of(KNOWN, rows=GENES, columns=("x", "y", "z")), DATA)
    X = 7 * KNOWN[:, [2, 0, 1, 0]] + [0, 0, 0, 0.05]
    pairs = compared(X, reference)
    assert [pair.reference for pair in pairs] == ["z", "x", "y", None]
    assert [pair.cosine for pair in pairs[:3]] == pytest.approx([1, 1, 1])
    assert pairs[0].angle == pytest.approx(0, abs=1e-4)
    assert pairs[3].nearest == "x"
    assert pairs[3].angle is None


def test_references_of_other_things_get_a_sentence():
    with pytest.raises(ValueError, match="--compare known is 4×5, and neither side is"):
        references(data_of(np.ones((4, 5))), DATA)
    with pytest.raises(ValueError, match="have unknown entries"):
        references(data_of(np.full((6, 2), np.nan)), DATA)
