"""Components beside references: by labels in any order, by number, and with a sentence if wrong."""

from dataclasses import replace

import numpy as np
import pytest

from factormer.app.read import Axis, Data, read
from factormer.app.runs import RunFolder
from factormer.app.runs.references import Pair, compared, kept_curves, kept_pairs, references

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


def test_components_may_share_their_nearest_reference():
    reference = references(data_of(KNOWN, rows=GENES, columns=("x", "y", "z")), DATA)
    X = 7 * KNOWN[:, [2, 0, 1, 0]] + [0, 0, 0, 0.05]
    pairs = compared(X, reference)
    assert [pair.reference for pair in pairs] == ["z", "x", "y", "x"]
    assert [pair.cosine for pair in pairs[:3]] == pytest.approx([1, 1, 1])
    assert pairs[0].angle == pytest.approx(0, abs=1e-4)
    assert not any(pair.parts for pair in pairs)


def test_a_component_may_be_a_sum_of_references():
    known = np.eye(6)[:, :4] + 0.01
    reference = references(data_of(known, rows=GENES, columns=("w", "x", "y", "z")), DATA)
    (pair,) = compared((0.7 * known[:, 1] + 0.3 * known[:, 3])[:, None], reference)
    assert pair.nearest == "x"
    assert pair.sum_cosine == pytest.approx(1, abs=1e-3)
    assert pair.sum == "0.70 x + 0.30 z"
    assert str(pair) == "x, cosine 0.920 (23.0°); 0.70 x + 0.30 z, cosine 1.000"


def spectra(path, head, places, values):
    rows = [",".join(map(str, row)) for row in zip(places, *values, strict=True)]
    path.write_text("\n".join([head, *rows] if head else rows))
    return read(path)


@pytest.mark.parametrize(
    "head", ["band", "nm", "wavenumber", "channel", "cm-1", "Raman (cm⁻¹)", ""]
)
@pytest.mark.parametrize("step", [1.0, 1.3])
def test_a_first_column_that_rises_is_positions_and_never_a_reference(tmp_path, head, step):
    places = np.round(400 * step ** np.arange(12) if step > 1 else 400 + 5 * np.arange(12.0), 3)
    known = RNG.uniform(0.1, 1, (2, 12))
    found = spectra(tmp_path / "known.csv", head and f"{head},clay,sand", places, known)
    V = Data(np.ones((3, 12)), Axis(3, "pixel"), Axis(12, "band"), "V", "")
    assert references(found, V).names == (("clay", "sand") if head else ("column 1", "column 2"))
    at = replace(V, columns=Axis(12, "band", positions=tuple(places)))
    reference = references(found, at)
    assert (reference.side, reference.by) == ("columns", "positions")
    np.testing.assert_allclose(reference.values, known.T)


def test_a_column_in_equal_steps_is_positions_whatever_its_name(tmp_path):
    known, V = RNG.uniform(0.1, 1, (2, 12)), Data.of(np.ones((3, 12)))
    found = spectra(tmp_path / "known.csv", "x,clay,sand", np.arange(5.0, 17.0), known)
    assert references(found, V).names == ("clay", "sand")
    decay = spectra(tmp_path / "decay.csv", "dye,clay,sand", np.exp(-np.arange(12.0)), known)
    assert references(decay, V).names == ("dye", "clay", "sand")


def test_spectra_are_matched_by_position_and_unit(tmp_path):
    places = np.linspace(0.4, 0.9, 51)
    found = spectra(tmp_path / "k.csv", "wavelength_um,a,b", places, [places, 1 + places**2])
    mine = (450.0, 500.0, 777.0)
    V = Data(np.ones((4, 3)), Axis(4, "pixel"), Axis(3, "band", positions=mine, unit="nm"), "", "")
    reference = references(found, V)
    np.testing.assert_allclose(reference.values[:, 0], np.array(mine) / 1000, atol=1e-9)
    beyond = replace(V.columns, positions=(450.0, 500.0, 2000.0))
    with pytest.raises(
        ValueError, match="goes from 400 to 900, and the bands of V from 450 to 2000"
    ):
        references(found, replace(V, columns=beyond))


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        (Pair(1, "x", 1.0, "x", 1.0), "x, cosine 1.000 (0.0°)"),
        (Pair(1, None, None, "x", 0.5), "no close reference (nearest x, cosine 0.500)"),
        (
            Pair(1, None, None, "y", 0.79, (("y", 0.6), ("z", 0.4)), 0.95),
            "no close reference (nearest y, cosine 0.790); 0.60 y + 0.40 z, cosine 0.950",
        ),
    ],
)
def test_only_a_close_reference_is_called_one(pair, words):
    assert str(pair) == words


def test_pairs_are_read_back_as_they_were_kept_also_those_of_earlier_versions(tmp_path):
    folder = RunFolder(tmp_path)
    folder.rank(2).mkdir()
    path = folder.rank(2) / "references.csv"
    head = "component,reference,cosine,angle,nearest,nearest_cosine"
    path.write_text(f"{head}\ncomponent 1,x,0.9,25.8,x,0.9\ncomponent 2,,,,x,0.5\n")
    old = kept_pairs(folder, 2)
    assert old == [Pair(1, "x", 0.9, "x", 0.9), Pair(2, None, None, "x", 0.5)]
    rows = "component 1,x,0.9,25.8,x,0.9,0.60 x + 0.40 a + z,0.99\ncomponent 2,,,,x,0.5,,\n"
    path.write_text(f"{head},sum,sum_cosine\n{rows}")
    now = kept_pairs(folder, 2)
    assert now is not None
    assert now[0] == Pair(1, "x", 0.9, "x", 0.9, (("x", 0.6), ("a + z", 0.4)), 0.99)
    assert kept_curves(folder, 2) == {}


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
