"""What the documentation shows is what happens: each Python example runs as it stands."""

import importlib
import importlib.util
import pkgutil
import re
import shutil
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

import factormer

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
WRITTEN = [page for page in sorted(DOCS.rglob("*.md")) if "generated" not in page.parts]
PAGES = [ROOT / "README.md", *WRITTEN]
SCRIPTS = sorted((DOCS / "examples").glob("*.py"))
SLOW = {"own_accelerator", "unmixing", "signatures"}
NEEDS_SCANPY = {"cells"}
ELSEWHERE = {"recipes"}  # run by tests/clients/test_recipes.py, where their packages are installed
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def blocks(page: Path, language: str) -> list[str]:
    fence = re.compile(rf"^```{language}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return fence.findall(page.read_text(encoding="utf-8"))


def examples(page: Path) -> list[str]:
    return blocks(page, "python")


LAB_PAGES = [page for page in PAGES if "factormer_lab" in "".join(examples(page))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def with_marks(page: Path):
    marks = [pytest.mark.slow] if page.stem in SLOW else []
    if page.stem in NEEDS_SCANPY:
        absent = importlib.util.find_spec("scanpy") is None
        marks.append(pytest.mark.skipif(absent, reason="needs scanpy, whose data it shows"))
    return pytest.param(page, id=name_of(page), marks=marks)


@pytest.fixture
def _as_pasted(tmp_path, monkeypatch):
    """A folder of its own, with what the text of a page has trained; no window opens."""
    plt = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    trained = tmp_path / "runs" / "spectra"
    trained.mkdir(parents=True)
    shutil.copy(DOCS / "examples" / "spectra.safetensors", trained)
    plt.switch_backend("agg")
    yield
    plt.close("all")


@pytest.mark.usefixtures("_as_pasted")
@pytest.mark.parametrize(
    "page",
    [
        with_marks(page)
        for page in PAGES
        if examples(page) and page not in LAB_PAGES and page.stem not in ELSEWHERE
    ],
)
def test_examples_run(page):
    run_examples(page)


def run_examples(page: Path) -> None:
    """Run the examples of a page, which share their names, as a reader's session does.

    What they print is what the page shows, but for the last digits of numbers, which are those of
    another processor. Pages of the gallery are left out: `make examples` prints them again.
    """
    namespace, shown = {"__name__": "__main__"}, printed(page)
    for number, source in enumerate(examples(page), start=1):
        code = compile(source, f"{name_of(page)}, example {number}", "exec", dont_inherit=True)
        with redirect_stdout(StringIO()) as out:
            exec(code, namespace)
        if source in shown and page.with_suffix(".py") not in SCRIPTS:
            found, expected = out.getvalue(), shown[source]
            assert NUMBER.sub("#", found) == NUMBER.sub("#", expected)
            numbers = ([float(text) for text in NUMBER.findall(t)] for t in (found, expected))
            np.testing.assert_allclose(*numbers, rtol=0.03, err_msg=source)


def printed(page: Path) -> dict[str, str]:
    """Return what a page shows right below an example as its output, by the example."""
    pair = re.compile(r"^```python\n([^`]*)^```\n\n```text\n(.*?)^```$", re.M | re.S)
    return dict(pair.findall(page.read_text("utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_example_escapes_by_the_way_it_is_written(page):
    opened = re.findall(r"^\s*(?:```|~~~)\s*\{?\.?(?:py|>>>)", page.read_text("utf-8"), re.M | re.I)
    assert len(opened) == len(examples(page))


def test_readme_has_examples():
    assert examples(ROOT / "README.md")


@pytest.mark.parametrize("script", SCRIPTS, ids=name_of)
def test_an_example_runs_wherever_it_is_pasted(script):
    """It imports packages alone, and asks for no file that only a clone has."""
    text = script.read_text("utf-8")
    roots = set(re.findall(r"^(?:import|from) (\w+)", text, re.M))
    packages = {"factormer", "matplotlib", "numpy", "pandas", "scanpy", "scipy", "sklearn", "torch"}
    assert roots <= packages
    assert not re.search(r"__file__|FACTORMER_DATA|data_folder|docs/", text)


@pytest.mark.parametrize("script", SCRIPTS, ids=name_of)
def test_page_of_an_example_shows_its_script(script, monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    cells = list(importlib.import_module("gallery").cells(script.read_text("utf-8")))
    page = script.with_suffix(".md").read_text("utf-8")
    assert not [cell.source for cell in cells if cell.is_text and cell.source not in page]
    sources = [cell.source for cell in cells if not cell.is_text]
    assert [source.strip() for source in examples(script.with_suffix(".md"))] == sources, (
        f"run: python docs/gallery.py {script.stem}"
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=name_of)
def test_every_example_is_in_the_gallery(script, monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    assert script.stem in importlib.import_module("gallery").NAMES
    assert f"examples/{script.stem}.html" in (DOCS / "gallery.md").read_text("utf-8")


def documented() -> set[str]:
    """Every name that the page of the API describes, from `factormer` on."""
    text, found = (DOCS / "api.md").read_text("utf-8"), set()
    directive = re.compile(r"^\.\. auto(\w+):: ([\w.]+)\n((?:   :.*\n)*)", re.M)
    for kind, name, options in directive.findall(text):
        name = name if name.startswith("factormer.") else f"factormer.{name}"
        members = re.findall(r"^   :members: (.+)$", options, re.M)
        found |= {f"{name}.{member}" for line in members for member in line.split(", ")}
        found |= {name} if kind != "module" else set()
    return found


def test_every_public_name_is_on_the_page_of_the_api():
    names = documented() | {"factormer.__version__"}  # which its first sentence names
    assert {f"factormer.{name}" for name in factormer.__all__} <= names


@pytest.mark.parametrize("name", sorted(documented()))
def test_every_name_on_the_page_of_the_api_exists(name):
    pkgutil.resolve_name(name)


def test_cards_of_all_networks_are_on_their_page(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    generate = importlib.import_module("generate")
    page = "\n".join(generate.model_cards(generate.models()))
    for name in generate.models():
        assert f"## {name}\n" in page
        assert generate.LIMITS[name] in page


def test_benchmarks_show_what_has_been_run_and_how_to_run_the_rest(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    generate = importlib.import_module("generate")
    (tmp_path / "peers.md").write_text("# Peers\n\n## digits\n\n| a |\n| --- |\n| 1 |\n")
    (tmp_path / "scaling.png").write_bytes(b"")
    page = "\n".join(generate.benchmark_sections(tmp_path))
    assert "### digits" in page
    assert "(results/benchmarks/scaling.png)" in page
    assert page.count("It has not been run") == len(generate.BENCHMARKS) - 2
