"""The conda recipe asks for what the package asks for."""

import re
import tomllib
from pathlib import Path

import pytest

import factormer

ROOT = Path(__file__).parents[1]
NAMES = {"torch": "pytorch"}


def test_the_recipe_has_the_requirements_and_the_version_of_the_package():
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wanted = {f"python {project['project']['requires-python']}"}
    for requirement in project["project"]["dependencies"]:
        if ";" not in requirement:  # the solver of conda knows which Python has which builds
            name, bound = re.findall(r"([\w-]+)(.*)", requirement)[0]
            wanted.add(f"{NAMES.get(name, name)} {bound}")
    assert set(recipe["requirements"]["run"]) == wanted
    built = {re.sub(r"(>=)", r" \1", one) for one in project["build-system"]["requires"]}
    assert built <= set(recipe["requirements"]["host"])
    assert recipe["context"]["version"] == factormer.__version__
    assert recipe["about"]["license"] == project["project"]["license"]
