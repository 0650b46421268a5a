"""Constraints as text become penalties, or a sentence."""

import pytest

from factormer.app.runs.constraints import KINDS, parse, parse_all
from factormer.penalties import L1, Bounds, Free, Group, Simplex


@pytest.mark.parametrize(
    ("text", "penalty"),
    [
        ("l1:0.1", L1(0.1)),
        ("L1:2", L1(2.0)),
        ("group:0.5:rows", Group(0.5, "rows")),
        ("simplex", Simplex()),
        ("simplex:2:columns", Simplex(2.0, "columns")),
        ("bounds:0:1", Bounds(0.0, 1.0)),
        ("free", Free()),
    ],
)
def test_text_becomes_a_penalty(text, penalty):
    assert parse(text) == penalty


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("l7:1", "there is no constraint 'l7'; choose l1, l2"),
        ("l1", "'l1' lacks a value; write l1:WEIGHT"),
        ("l1:much", "'l1:much' has a value that is not a number; write l1:WEIGHT"),
        ("l1:1:2", "'l1:1:2' has too many values; write l1:WEIGHT"),
        ("l1:-1", "L1 has weight -1.0; it must be at least 0"),
        ("group:1:sides", "Group is by 'sides'; choose 'rows' or 'columns'"),
    ],
)
def test_what_is_wrong_gets_a_sentence(text, sentence):
    with pytest.raises(ValueError, match=sentence):
        parse(text)


def test_every_kind_of_penalty_has_a_name():
    import factormer.penalties as all_of_them

    kinds = {
        kind
        for kind in vars(all_of_them).values()
        if isinstance(kind, type) and issubclass(kind, all_of_them.Penalty)
    }
    unnamed = {all_of_them.Penalty, all_of_them.Fixed}  # known columns are no words
    assert set(KINDS.values()) == kinds - unnamed


def test_nothing_asked_is_none():
    assert parse_all(()) is None
    assert parse_all(["l1:1", "l2:1"]) is not None
