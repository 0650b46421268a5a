"""The architecture: imports point one way, files stay short, importing the package does nothing."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "factormer"
FILES = sorted(SRC.rglob("*.py"))
MAX_LINES = 600
ROOT = SRC.parents[1]

# The rooms, in the order of the layers: each imports only those before it.
LAYERS = [
    "starting",
    "sentence",
    "kernels",
    "data",
    "problem",
    "nn",
    "solvers",
    "starts",
    "accelerate",
    "run",
    "many",
    "functions",
    "select",
    "estimator",
    "clients",
    "__init__",  # the public names
    "app",
    "losses",  # public names of what lies in a room
    "penalties",
    "datasets",
    "plot",
    "tl",
    "__main__",
]


def name_of(file: Path) -> str:
    return str(file.relative_to(SRC))


def unit_of(file: Path) -> str:
    """The module or subpackage, directly in factormer, that a file belongs to."""
    return file.relative_to(SRC).with_suffix("").parts[0]


def imported_units(source: str, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Yield line and unit of each import from factormer, wherever in the source it stands.

    `package` is the dotted name of the package that the source is in, split at its dots.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            names = [(*base, alias.name) for alias in node.names]
        else:
            continue
        for root, *path in names:
            if root == "factormer":
                unit = path[0] if path else "__init__"
                is_unit = unit in LAYERS or (SRC / unit).is_dir() or (SRC / f"{unit}.py").exists()
                yield node.lineno, unit if is_unit else "__init__"


def rank_of(unit: str) -> int:
    assert unit in LAYERS, (
        f"factormer.{unit} has no place in the order of the layers; "
        f"give it one in LAYERS of tests/test_layout.py and in CONTRIBUTING.md"
    )
    return LAYERS.index(unit)


def pointing_up(file: Path) -> Iterator[str]:
    unit = unit_of(file)
    package = ("factormer", *file.relative_to(SRC).parent.parts)
    for line, other in imported_units(file.read_text(encoding="utf-8"), package):
        if other != unit and rank_of(other) >= rank_of(unit):
            yield f"{name_of(file)}:{line}: {unit} must not import {other}"


def test_imports_point_down():
    wrong = [text for file in FILES for text in pointing_up(file)]
    assert not wrong, "\n".join(wrong)


def test_every_module_has_a_rank():
    for file in FILES:
        rank_of(unit_of(file))


@pytest.mark.parametrize(
    ("source", "package", "expected"),
    [
        ("import factormer.solvers.hals", "factormer", "solvers"),
        ("from factormer.nn import zoo", "factormer.run", "nn"),
        ("from factormer import problem", "factormer", "problem"),
        ("from factormer import NMF", "factormer", "__init__"),
        ("import factormer", "factormer", "__init__"),
        ("from . import problem", "factormer", "problem"),
        ("from .base import Solver", "factormer.solvers", "solvers"),
        ("from ..nn.zoo import load", "factormer.accelerate", "nn"),
        ("def f():\n    from factormer.run.trace import Trace", "factormer", "run"),
    ],
)
def test_every_way_to_import_is_seen(source, package, expected):
    assert [unit for _, unit in imported_units(source, tuple(package.split(".")))] == [expected]


def test_imports_of_others_are_not_ours():
    assert not list(imported_units("import torch\nfrom factormer_extras import x", ("factormer",)))


def test_the_package_knows_nothing_of_the_lab():
    wrong = [
        f"{name_of(file)}:{node.lineno}"
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom) and "factormer_lab" in ast.unparse(node)
    ]
    assert not wrong, "\n".join(wrong)


def test_files_are_short():
    lengths = {name_of(file): len(file.read_text("utf-8").splitlines()) for file in FILES}
    long = {name: length for name, length in lengths.items() if length > MAX_LINES}
    assert not long, f"more than {MAX_LINES} lines: {long}; split them by their jobs"


POINTING = re.compile(
    r"(That|Those|Such|These|It|Its|They|Their|The same|What|Where|So many|As many)\b"
)
DOCSTRINGS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@pytest.mark.parametrize(("folders", "most"), [("src", 38), ("tests lab core", 39)])
def test_docstrings_begin_with_what_they_are_about(folders, most):
    """A docstring is read alone, where "Those of a run" points at nothing. The counts only fall."""
    begun = [
        f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"
        for folder in folders.split()
        for file in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, DOCSTRINGS) and POINTING.match(ast.get_docstring(node) or "")
    ]
    assert len(begun) <= most, "\n".join(begun)


# Torch comes first: what it does on import is not ours.
IMPORT_AND_REPORT = """
import json, sys, torch
opened, before = [], torch.get_rng_state()
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
import factormer
from factormer import *  # names are loaded when they are asked for
print(json.dumps({
    "modules": sorted({name.partition(".")[0] for name in sys.modules}),
    "weights": [path for path in opened if path.endswith(".safetensors")],
    "seeded": not torch.equal(before, torch.get_rng_state()),
    "cuda": torch.cuda.is_initialized(),
    "group": torch.distributed.is_available() and torch.distributed.is_initialized(),
}))
"""


@pytest.fixture(scope="module")
def fresh_import() -> dict:
    """What `import factormer` did in a process of its own."""
    command = [sys.executable, "-c", IMPORT_AND_REPORT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("module", ["matplotlib", "torch_geometric", "typer", "numba"])
def test_import_leaves_optional_packages_alone(fresh_import, module):
    assert module not in fresh_import["modules"]


LOADED = """
import json, sys
exec(sys.argv[1])
print(json.dumps([name for name in ("torch", "sklearn", "scipy.stats") if name in sys.modules]))
"""


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("import factormer; dir(factormer), factormer.__version__", []),
        ("from factormer import factorize, factorize_many, select_rank, consensus", ["torch"]),
    ],
)
def test_names_load_what_they_need(statement, expected):
    command = [sys.executable, "-c", LOADED, statement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == expected


def test_every_public_name_is_there_and_others_are_not():
    import factormer

    assert [name for name in factormer.__all__ if not hasattr(factormer, name)] == []
    loaded = [name for names in factormer._MODULES.values() for name in names]
    assert sorted(loaded) == sorted(set(factormer.__all__) - {"__version__"})
    with pytest.raises(AttributeError, match="module 'factormer' has no attribute 'nmf'"):
        _ = factormer.nmf


def test_import_reads_no_weights(fresh_import):
    assert fresh_import["weights"] == []


@pytest.mark.parametrize("effect", ["seeded", "cuda", "group"])
def test_import_has_no_side_effect(fresh_import, effect):
    assert not fresh_import[effect]


DEEP = (ROOT / "tests").glob("*/**/test_*.py")


def test_what_runs_as_other_processors_is_there():
    """A folder that moved would end the run of every set before it began."""
    script = (Path(__file__).parent / "run_as_other_processors.sh").read_text()
    named = re.findall(r"tests/[\w/]+(?:\.py)?(?=[\s\"])", script)
    assert len(named) > 5
    assert [path for path in named if not (ROOT / path).exists()] == []
    folders = {f"tests/{file.parent.relative_to(ROOT / 'tests').parts[0]}" for file in DEEP}
    assert folders == folders & set(named)


def test_a_public_name_can_be_set_and_taken_back(monkeypatch):
    import factormer

    monkeypatch.setattr(factormer, "Ragged", list)
    assert factormer.Ragged is list
    monkeypatch.undo()
    assert factormer.Ragged([1.0, 2.0], [(1, 2)]).shapes.tolist() == [[1, 2]]
    assert type(factormer).Ragged is not list
