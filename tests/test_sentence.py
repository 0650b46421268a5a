"""Sentences keep options apart from text and from values."""

import copy
import pickle

import pytest

from factormer.sentence import Option, Sentence, sentence_of


def shouted(option: Option) -> str:
    return f"<{option.name.upper()} {option.value}>"


@pytest.mark.parametrize(
    ("sentence", "python", "spelled"),
    [
        (Sentence("{tol} is {given!r}", given=-1), "tol is -1", "<TOL None> is -1"),
        (Sentence("use {missing=zeros}"), "use missing='zeros'", "use <MISSING zeros>"),
        (
            Sentence("{symmetric=True}, {accelerator=None}"),
            "symmetric=True, accelerator=None",
            "<SYMMETRIC True>, <ACCELERATOR None>",
        ),
        (Sentence("{size:.2g} of {{V}}", size=1234.5), "1.2e+03 of {V}", "1.2e+03 of {V}"),
        (Sentence("{use f(x='y')} here"), "use f(x='y') here", "<USE F(X='Y') None> here"),
        (Sentence("{name} is bad", name=Option("mask")), "mask is bad", "<MASK None> is bad"),
        (
            Sentence("problem 3: {said}", said=Sentence("{tol} is {x}", x="{tol}")),
            "problem 3: tol is {tol}",
            "problem 3: <TOL None> is {tol}",
        ),
    ],
)
def test_options_are_keywords_and_can_be_spelled_otherwise(sentence, python, spelled):
    assert sentence == python
    assert sentence.spelled(shouted) == spelled


@pytest.mark.parametrize("value", ["max_iter is 3", "{tol}", "missing='zeros'", "--tol"])
def test_values_are_never_rewritten(value):
    sentence = Sentence("{loss} is {given}", given=value)
    assert sentence.spelled(shouted) == f"<LOSS None> is {value}"


@pytest.mark.parametrize("kind", [ValueError, TypeError, TimeoutError])
@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))]
)
def test_errors_keep_their_options_in_other_processes(kind, again):
    error = again(kind(Sentence("{tol} is {given}", given=-1)))
    assert type(error) is kind
    assert str(error) == "tol is -1"
    told = sentence_of(error)
    assert isinstance(told, Sentence)
    assert told.spelled(shouted) == "<TOL None> is -1"


def test_errors_of_others_have_a_text_alone():
    assert sentence_of(ValueError("max_iter is 3")) == "max_iter is 3"
    assert sentence_of(OSError(28, "full")) == "[Errno 28] full"
    assert sentence_of(ValueError()) == ""
