"""The recipes for other packages run, each where its package is installed."""

import importlib.util
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "recipes.md"
PART = re.compile(r"^## (\w+)\n.*?^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.M | re.S)
RECIPES = {match[1].lower(): match for match in PART.finditer(PAGE.read_text("utf-8"))}


def test_the_page_has_its_recipes():
    assert list(RECIPES) == ["librosa", "hyperspy", "bertopic", "turftopic"]


@pytest.mark.filterwarnings("ignore")  # of the packages themselves
@pytest.mark.parametrize("package", RECIPES)
def test_a_recipe_runs(package):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}: make recipes")
    _, _, source, shown = (RECIPES[package][k] for k in range(4))
    with redirect_stdout(StringIO()) as out:
        exec(
            compile(source, f"{package} recipe", "exec", dont_inherit=True), {"__name__": "recipe"}
        )
    if shown is not None:
        assert out.getvalue() == shown
    else:
        assert len(out.getvalue().splitlines()) >= 2
