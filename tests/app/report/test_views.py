"""What travels inside the page: small, and still what it was."""

import base64

import numpy as np
import pytest

from factormer.app.read import Axis
from factormer.app.report.views import (
    Reduction,
    in_order,
    packed,
    shrunk,
    specificities,
    telling,
    thinned,
    top,
)


def unpacked(p) -> np.ndarray:
    """Decode as the script of the page does."""
    levels = np.frombuffer(base64.b64decode(p["data"]), "<u2" if p["bits"] == 16 else "u1")
    span = (p["high"] - p["low"]) / (2 ** p["bits"] - 2)
    return np.where(levels == 0, np.nan, p["low"] + (levels - 1.0) * span)


@pytest.mark.parametrize("depth", [8, 16])
def test_packed_numbers_come_back(depth):
    x = np.random.default_rng(0).random(50) * 7 - 2
    x[3] = np.nan
    tolerance = 9 / (2**depth - 2)
    np.testing.assert_allclose(unpacked(packed(x, depth=depth)), x, atol=tolerance)


@pytest.mark.parametrize("x", [np.zeros(3), np.full(3, np.nan), np.full(3, 2.5)], ids=str)
def test_constants_and_nothing_come_back(x):
    np.testing.assert_array_equal(unpacked(packed(x)), x)


def test_images_are_shrunk_by_means_and_small_ones_are_not():
    image = np.arange(16.0).reshape(4, 4)
    np.testing.assert_array_equal(shrunk(image, 16), image)
    np.testing.assert_array_equal(shrunk(image, 4), [[2.5, 4.5], [10.5, 12.5]])
    image[0, 0] = np.nan
    np.testing.assert_allclose(shrunk(image, 4)[0, 0], (1 + 4 + 5) / 3)
    assert shrunk(np.ones((7, 13)), 20).size <= 20


def test_lines_keep_their_peaks():
    x = np.zeros(1000)
    x[777] = 5.0
    reduction = Reduction(Axis(1000, "row", is_ordered=True), 100)
    small = unpacked(reduction(x))
    assert len(small) == len(reduction.described()["first"]) == 100
    assert (small.max(), small.argmax()) == (5.0, 77)


def test_what_has_no_order_is_sorted_and_keeps_both_ends():
    x = np.random.default_rng(0).random(1000)
    x[5] = np.nan
    reduction = Reduction(Axis(1000, "gene", labels=tuple(map(str, range(1000)))), 5000)
    small, places = unpacked(reduction(x)), reduction.described()["first"]
    assert len(small) == len(places) == 200
    expected = np.append(np.sort(x[np.isfinite(x)])[::-1], np.nan)[places]
    np.testing.assert_allclose(small, expected, atol=1e-4)


def test_axes_tell_the_page_how_to_draw_them():
    line = Axis(3, "frequency", positions=(0.0, 0.5, 1.0), unit="Hz")
    about = Reduction(line, 10).described()
    assert (about["kind"], about["positions"], about["unit"]) == ("line", [0.0, 0.5, 1.0], "Hz")
    about = Reduction(Axis(12, "pixel", grid=(3, 4)), 4).described()
    assert (about["grid"], about["shown"]) == ([3, 4], [2, 2])
    about = Reduction(Axis(2, "gene", labels=("a" * 100, "b")), 10).described()
    assert about["labels"] == ["a" * 79 + "…", "b"]


def test_top_names_the_greatest_above_zero():
    axis = Axis(4, "term", labels=("a", "b", "c", "d"))
    x = np.array([0.0, 3.0, np.nan, 7.0])
    assert top(x, axis, 10) == [["d", 7.0], ["b", 3.0]]
    assert top(x, axis, 1) == [["d", 7.0]]


def test_specific_is_what_other_components_do_not_have():
    X = np.array([[8.0, 0.0], [2.0, 20.0], [0.0, 20.0], [0.0, 0.0]])  # sums 10 and 40
    expected = [[1, 0], [0.2 / 0.7, 0.5 / 0.7], [0, 1], [0, 0]]
    np.testing.assert_allclose(specificities(X), expected)
    np.testing.assert_allclose(specificities(1e300 * X), expected)
    np.testing.assert_allclose(specificities(np.ones((5, 4))), np.full((5, 4), 0.25))


def test_telling_entries_are_the_most_specific_of_the_heavy_ones():
    axis = Axis(100, "term", labels=tuple(f"t{i}" for i in range(100)))
    x, specificity = np.full(100, 1e-3), np.full(100, 1.0)
    x[:40], specificity[:40] = np.linspace(10, 5, 40), 0.3
    specificity[[7, 20]] = 0.9, 0.902  # equal but for rounding: the heavier one comes first
    found = telling(x, specificity, axis, 3)
    assert [name for name, *_ in found] == ["t7", "t20", "t0"]
    assert found[2][1:] == [0.3, 1.0]
    assert telling(np.zeros(100), specificity, axis, 3) == []


def test_order_is_seen_where_neighbours_are_alike():
    smooth = np.stack([np.sin(np.linspace(0, k, 50)) + 1 for k in (2, 5, 9)], axis=1)
    shuffled = np.random.default_rng(0).permutation(smooth)
    plain = Axis(50, "column")
    assert in_order(plain, smooth).kind == "line"
    assert in_order(plain, 1e300 * smooth).kind == "line"
    assert in_order(plain, shuffled).kind == "plain"
    assert in_order(plain, np.ones((50, 3))).kind == "plain"
    named = Axis(50, "gene", labels=("a",) * 50)
    assert in_order(named, smooth).kind == "labels"


def test_thinned_keeps_both_ends():
    rows = list(range(1000))
    few = thinned(rows, 50)
    assert len(few) <= 52
    assert (few[0], few[-1]) == (0, 999)
    assert few == sorted(set(few))
    assert thinned(rows, 1000) == rows
