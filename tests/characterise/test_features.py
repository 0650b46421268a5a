"""The table of features names what exists, and leaves out no section, keyword or option."""

import ast
import inspect
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

import factormer
from factormer.app.cli import app
from tests.characterise.cases import CASES, REAL

ROOT = Path(__file__).parents[2]
TESTS = [folder for folder in (ROOT / "tests", ROOT / "lab" / "tests") if folder.exists()]
TABLE = Path(__file__).with_name("features.md").read_text("utf-8")
NAMES = {case.name for case in (*CASES, *REAL)}
CALLS = [
    "factorize",
    "factorize_many",
    "NMF",
    "MiniBatchNMF",
    "select_rank",
    "consensus",
    "cross_validate",
    "select_loss",
]
PAGES = ["README.md", "docs/api.md", "docs/cli.md", "docs/estimator.md", "docs/promises.md"]
PAGES += [
    "docs/losses.md",
    *(f"docs/howto/{page.name}" for page in (ROOT / "docs/howto").iterdir()),
]
COMMANDS: dict[str, Any] = getattr(typer.main.get_command(app), "commands", {})


def parts() -> dict[str, list[list[str]]]:
    """The rows of each part of the table, by its heading."""
    found: dict[str, list[list[str]]] = {}
    for part in TABLE.split("\n## ")[1:]:
        heading, _, text = part.partition("\n")
        lines = [line for line in text.splitlines() if line.startswith("| ")][2:]
        found[heading] = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return found


def first_names(heading: str) -> set[str]:
    """Return the first name in backticks of each row of a part, which the row is about."""
    return {re.findall(r"`([^`]+)`", row[0])[0] for row in parts()[heading]}


def held_by() -> Iterator[tuple[str, str]]:
    for heading, rows in parts().items():
        for row in rows:
            yield f"{heading}: {row[-2]}", row[-1]


@cache
def functions_of(file: str) -> set[str]:
    """The names of the tests in a file below `tests/` or `lab/tests/`."""
    paths = [folder / file for folder in TESTS if (folder / file).exists()]
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def test_every_case_and_test_that_is_named_exists():
    absent = []
    for feature, names in held_by():
        for case in re.findall(r"case `([^`]+)`", names):
            absent += [(feature, case)] * (case not in NAMES)
        for file, test in re.findall(r"`([\w/]+\.py)::(\w+)`", names):
            absent += [(feature, f"{file}::{test}")] * (test not in functions_of(file))
    assert not absent


def test_every_feature_is_held_by_something():
    named = re.compile(r"case `|\.py::test_")
    bare = [feature for feature, names in held_by() if not named.search(names)]
    assert all(": figures (" in feature for feature in bare)


@pytest.mark.parametrize("page", PAGES)
def test_every_section_of_a_page_has_a_row(page):
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text("utf-8"), flags=re.M | re.S)
    sections = set(re.findall(r"^##+ (.+)$", text, re.M))
    assert sections <= {row[0] for row in parts()[page]}


@pytest.mark.parametrize("page", PAGES)
def test_no_row_is_of_a_section_that_is_gone(page):
    sections = set(re.findall(r"^#+ (.+)$", (ROOT / page).read_text("utf-8"), re.M))
    assert {row[0] for row in parts()[page]} <= sections | {page}


@pytest.mark.parametrize("name", CALLS)
def test_every_keyword_has_a_row(name):
    parameters = inspect.signature(getattr(factormer, name)).parameters
    keywords = set(parameters) - {"V", "X", "problems", "options", "self"}
    keywords -= {"rank"} if name == "factorize" else set()
    assert first_names(f"Keywords of {name}") == keywords


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_has_a_row(name):
    if name in ("train", "reproduce"):
        pytest.importorskip("factormer_lab", reason="the lab, which has this command, is absent")
    options = {parameter.opts[0] for parameter in COMMANDS[name].params} - {"--help"}
    assert first_names(f"Options of factormer {name}") == options


def test_every_case_is_frozen():
    frozen = json.loads(Path(__file__).with_name("frozen.json").read_text("utf-8"))
    assert set(frozen["cases"]) == NAMES
    assert set(frozen["not_kept"]) <= NAMES
