"""What the documentation shows is what happens: each Python example runs as it stands."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples(page: Path) -> list[str]:
    return FENCE.findall(page.read_text(encoding="utf-8"))


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)], ids=name_of)
def test_examples_run(page, tmp_path, monkeypatch):
    """The examples of a page share their names, as a reader's session does."""
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for number, source in enumerate(examples(page), start=1):
        code = compile(source, f"{name_of(page)}, example {number}", "exec", dont_inherit=True)
        exec(code, namespace)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_example_escapes_by_the_way_it_is_written(page):
    opened = re.findall(r"^\s*(?:```|~~~)\s*\{?\.?(?:py|>>>)", page.read_text("utf-8"), re.M | re.I)
    assert len(opened) == len(examples(page))


def test_readme_has_examples():
    assert examples(ROOT / "README.md")
