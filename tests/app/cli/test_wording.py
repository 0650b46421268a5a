"""Errors in the words of the command line."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import numpy as np
import pytest

import factormer
from factormer import NMF, consensus, cross_validate, factorize
from factormer.app.cli import fit, main
from factormer.app.cli.wording import PHRASES, spelled, typed
from factormer.sentence import Option

SRC = Path(factormer.__file__).parent
# The rooms of which the command line uses nothing.
APART = {"estimator", "clients", "datasets", "tl.py", "plot.py"}
# What it uses with arguments that it has checked before, in words of its own.
CHECKED = {"many/resample.py"}
FLAGS = set(inspect.signature(fit.fit).parameters)
KEYWORDS = [
    name
    for function in (factorize, NMF, consensus, cross_validate)
    for name in inspect.signature(function).parameters
]
TYPED = {name: f"--{name.lower().replace('_', '-')}" for name in KEYWORDS if name.lower() in FLAGS}
TYPED |= {"random_state": "--seed", "n_runs": "--repeats"}


@pytest.mark.parametrize("name", sorted(set(KEYWORDS)))
def test_each_keyword_is_spelled_as_its_option_if_it_has_one(name):
    assert spelled(Option(name)) == TYPED.get(name, name)


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (Option("symmetric", "True"), "--symmetric"),
        (Option("missing", "zeros"), "--missing zeros"),
        (Option("accelerator", "None"), "--accelerator none"),
        (Option("regularize_W"), "--regularize-w"),
        (Option("V"), "V"),
        (Option("stop", "decrease"), "stop='decrease'"),
        (Option("pass V.toarray()"), "save V as a dense file"),
    ],
)
def test_settings_are_spelled_too(option, expected):
    assert spelled(option) == expected


def test_errors_of_others_stay_as_they_are():
    assert typed(ValueError("max_iter is missing='zeros'")) == "max_iter is missing='zeros'"


@pytest.mark.usefixtures("data_files")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--max-iter", "-1"], "--max-iter is -1; it must be a whole number of at least 0"),
        (["--tol", "-1"], "--tol is -1.0; it must be at least 0 (0: run all of --max-iter)"),
        (["--time-limit", "-1"], "--time-limit is -1.0; it must be a positive number"),
        (["--seed", "-1"], "--seed is -1; it must be a whole number from 0"),
        (["--rank", "0"], "--rank is '0'; it must be a number above 0"),
        (["--n-init", "0"], "--n-init is 0; it must be a whole number of at least 1"),
        (["--loss", "max_iter"], "--loss is 'max_iter'; choose 'frobenius'"),
        (["--solver", "tol is"], "--solver is 'tol is', and no solver has this name."),
        (["--init", "n_init"], "--init is 'n_init'; choose one of auto"),
        (["--accelerator", "x"], "--accelerator is 'x'; choose one of auto"),
        (["--device", "gpu"], "--device is 'gpu', which is not on this machine"),
        (["--missing", "ones"], "--missing is 'ones'; choose 'zeros'"),
        (["--mask", "small.npy"], "--mask has shape (2, 2); it must have that of V"),
        (["--weights", "max_iter.npy"], "--weights has 1 entries that are negative"),
        (["--memory-limit", "x"], "--memory-limit is 'x'; it must be a number of bytes"),
        (["--layout", "x"], "--layout is 'x'; choose 'images' or 'cube'"),
        (
            ["--regularize-w", "l1:1", "--regularize-w", "l1:2"],
            "--regularize-w is [L1(weight=1.0), L1(weight=2.0)]; at most one of each kind",
        ),
        (["--symmetric"], "--symmetric needs "),
        (["--solver", "newton"], "--solver is 'newton', which "),
        (["--symmetric", "--loss", "kl"], "--symmetric goes only with the squared error: leave "),
        (["--holdout", "2"], "--holdout is 2.0; it must be a share of the entries"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_errors_name_options_as_they_are_typed(arguments, sentence, capsys):
    np.save("small.npy", np.ones((2, 2)))
    weights = np.ones(np.load("data.npy").shape)
    weights[0, 0] = -1
    np.save("max_iter.npy", weights)
    assert main(["fit", "data.npy", *arguments]) == 1
    assert capsys.readouterr().err.startswith(f"factormer: {sentence}")


# The source


def raised() -> Iterator[tuple[str, ast.Raise | ast.Call]]:
    """Each statement or call that makes an error which the command line may meet."""
    for file in sorted(SRC.rglob("*.py")):
        name = str(file.relative_to(SRC))
        if name.split("/")[0] in APART or name in CHECKED:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) or (
                isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Error")
            ):
                yield f"{name}:{node.lineno}", node


def sentences() -> Iterator[tuple[str, ast.Call]]:
    """Each place that makes a `Sentence`."""
    for file in sorted(SRC.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Sentence":
                yield f"{file.relative_to(SRC)}:{node.lineno}", node


def fields(template: str) -> set[str]:
    return {field for _, field, _, _ in Formatter().parse(template) if field is not None}


def in_plain_text(node: ast.AST) -> Iterator[str]:
    """The text in an expression, without the placeholders of sentences and of f-strings."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Sentence":
        template = node.args[0]
        assert isinstance(template, ast.Constant)
        assert isinstance(template.value, str)
        yield "…".join(text for text, *_ in Formatter().parse(template.value))
    elif isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)  # pyright: ignore
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from in_plain_text(child)


def unspelled(text: str) -> bool:
    """Whether a text names an option as Python does."""
    names = "|".join({*TYPED, *FLAGS})
    unique = "|".join(name for name in TYPED if "_" in name)
    return bool(
        re.search(rf"(?<![\w-])({unique})(?!\w)", text)
        or re.search(rf"(?<![\w-])({names})=['\w]", text)
        or re.match(rf"({names}) (is|are|has|holds|must|names)\b", text)
        or re.search(rf"\bleave ({names}) out\b", text)
        or re.search(r"\bV\.toarray\(\)", text)
    )


def test_errors_name_options_by_placeholders_alone():
    wrong = [
        f"{place}: {text}"
        for place, made in raised()
        for text in in_plain_text(made)
        if unspelled(text)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("max_iter is -1", True),
        ("rank is 0", True),
        ("use missing='zeros'", True),
        ("raise memory_limit", True),
        ("leave device out", True),
        ("--max-iter is -1", False),
        ("the loss of an entry", False),
        ("its rank is high", False),
    ],
)
def test_plain_names_of_options_are_found(text, found):
    assert unspelled(text) == found


def test_sentences_have_known_placeholders_and_use_all_values():
    known = set(TYPED) | set(PHRASES)
    places = list(sentences())
    assert len(places) > 50
    wrong = []
    for place, made in places:
        template = made.args[0]
        assert isinstance(template, ast.Constant), place
        assert isinstance(template.value, str), place
        found, values = fields(template.value), {str(value.arg) for value in made.keywords}
        options = found - values - known
        unknown = {field for field in options if field.partition("=")[0] not in TYPED}
        if not values <= found or unknown:
            wrong.append(f"{place}: {sorted(values - found)} {sorted(unknown)}")
    assert not wrong, "\n".join(wrong)
