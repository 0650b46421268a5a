"""Components beside references: by labels in any order, by number, and with a sentence if wrong."""

import numpy as np
import pytest

from factormer.app.read import Axis, Data
from factormer.app.runs import RunFolder
from factormer.app.runs.references import Pair, compared, kept_pairs, references

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
    found = references(data_of(KNOWN), DATA)
    assert (found.values.shape, found.by) == ((6, 3), "order")
    assert references(data_of(np.ones((2, 9))), DATA).side == "rows"
    bare = references(data_of(KNOWN, rows=GENES), data_of(np.ones((9, 6))))
    assert (bare.side, bare.by) == ("columns", "order")


@pytest.mark.parametrize(
    ("genes", "lacks", "count"),
    [("abcdeF", "'f'", 1), ("abXdYf", "'c'", 2), ("ABCDEF", "'a'", 6), ("fedcb", "'a'", 1)],
)
def test_labels_that_differ_are_refused_and_never_taken_by_order(genes, lacks, count):
    found = data_of(KNOWN[: len(genes)], rows=tuple(genes), columns=("x", "y", "z"))
    for turned in (found, found.transposed()):
        with pytest.raises(ValueError, match=f"lacks {lacks} .*, {count} of the 6 genes of V"):
            references(turned, DATA)
        if count < len(GENES):  # some are known: nor along rows of the same number without labels
            with pytest.raises(ValueError, match=f"lacks {lacks}"):
                references(turned, data_of(np.ones((len(genes), 6)), columns=GENES))


def test_a_label_twice_is_refused_and_more_labels_are_not():
    more = data_of(np.vstack([KNOWN, KNOWN[:1]]), rows=(*GENES, "g"))
    np.testing.assert_array_equal(references(more, DATA).values, KNOWN)
    with pytest.raises(ValueError, match="has 'a' twice among its labels"):
        references(data_of(more.V, rows=(*GENES, "a")), DATA)


def test_numbers_are_the_same_label_however_they_are_written():
    V = data_of(np.ones((9, 6)), columns=tuple(f"{400 + k}.0" for k in range(6)))
    found = references(data_of(KNOWN[::-1], rows=tuple(str(405 - k) for k in range(6))), V)
    assert found.by == "labels"
    np.testing.assert_array_equal(found.values, KNOWN)


def test_pairs_are_one_to_one_and_the_nearest_is_told():
    reference = references(data_of(KNOWN, rows=GENES, columns=("x", "y", "z")), DATA)
    X = 7 * KNOWN[:, [2, 0, 1, 0]] + [0, 0, 0, 0.05]
    pairs = compared(X, reference)
    assert [pair.reference for pair in pairs] == ["z", "x", "y", None]
    assert [pair.cosine for pair in pairs[:3]] == pytest.approx([1, 1, 1])
    assert pairs[0].angle == pytest.approx(0, abs=1e-4)
    assert pairs[3].nearest == "x"
    assert pairs[3].angle is None


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        (Pair(1, "x", 1.0, "x", 1.0), "x, cosine 1.000 (0.0°)"),
        (Pair(1, "x", 0.9, "y", 0.95), "x, cosine 0.900 (25.8°); nearest y, cosine 0.950"),
        (Pair(1, "x", 0.5, "x", 0.5), "no close reference (nearest x, cosine 0.500)"),
        (Pair(1, None, None, "y", 0.79), "no close reference (nearest y, cosine 0.790)"),
        (
            Pair(1, "x", 0.5, "y", 0.9),
            "no close reference left (nearest y, cosine 0.900, which another component has)",
        ),
    ],
)
def test_only_a_close_reference_is_called_one(pair, words):
    assert str(pair) == words


def test_a_table_of_pairs_that_was_changed_gets_a_sentence(tmp_path):
    folder = RunFolder(tmp_path)
    assert kept_pairs(folder, 2) is None
    folder.rank(2).mkdir()
    (folder.rank(2) / "references.csv").write_text("component,reference\n1,x\n")
    with pytest.raises(ValueError, match="is not the table of 2 components and references"):
        kept_pairs(folder, 2)


def test_references_of_other_things_get_a_sentence():
    with pytest.raises(ValueError, match="--compare known is 4×5, and neither side is"):
        references(data_of(np.ones((4, 5))), DATA)
    with pytest.raises(ValueError, match="have unknown entries"):
        references(data_of(np.full((6, 2), np.nan)), DATA)
