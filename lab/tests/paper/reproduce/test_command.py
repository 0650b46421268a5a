import json
import re
from functools import partial
from pathlib import Path

import pytest

from factormer_lab.paper.reproduce import FIGURES, command, reproduce
from factormer_lab.paper.reproduce.command import Recipe
from factormer_lab.paper.reproduce.optimum import optimum
from factormer_lab.paper.reproduce.real import histogram, real
from lab.tests.paper.reproduce.cases import KEYS, N_ITER, shrink_images, shrink_sets, stand_in


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All figures, made once, of small matrices."""
    out = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as monkeypatch:
        shrink_sets(monkeypatch)
        shrink_images(monkeypatch)
        path = reproduce(None, data=Path("nowhere"), out=out)
    assert path == out / "RESULTS.md"
    return out


@pytest.mark.parametrize("name", FIGURES)
def test_each_figure_has_a_picture_and_numbers(made: Path, name: str):
    assert (made / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    numbers = json.loads((made / f"{name}.json").read_text(encoding="utf-8"))
    assert numbers["figure"] == name
    assert numbers["seconds"] > 0


@pytest.mark.parametrize("name", ["synthetic-small", "synthetic-large", "yale", "jasper"])
def test_every_contestant_is_measured_at_every_iteration(made: Path, name: str):
    rows = json.loads((made / f"{name}.json").read_text(encoding="utf-8"))["contestants"]
    beyond = {"init-r10-always"} if name.startswith("synthetic") else set()
    assert rows.keys() >= set(KEYS) - beyond
    for row in rows.values():
        curves = row["rmse"].values() if isinstance(row["rmse"], dict) else [row["rmse"]]
        assert all(len(curve) == N_ITER + 1 for curve in curves)
        assert row["seconds"]["iteration"] > 0
        assert (row["kept"] is None) == (row["seconds"]["network"] == 0)


def test_manifest_names_what_the_numbers_depend_on(made: Path):
    manifest = json.loads((made / "manifest.json").read_text(encoding="utf-8"))["figures"]
    assert list(manifest) == list(FIGURES)
    for entry in manifest.values():
        assert entry["command"] == "factormer reproduce"
        assert entry["seconds"] > 0
        assert {"factormer", "commit", "torch", "machine", "networks"} <= entry.keys()
        assert entry["machine"]["cores"] >= 1
        assert all(len(sha) == 64 for sha in entry["networks"].values())


def test_nothing_written_names_a_folder(made: Path):
    for path in [*made.glob("*.json"), made / "RESULTS.md"]:
        text = path.read_text(encoding="utf-8")
        assert str(made) not in text
        assert str(Path.home()) + "/" not in text


def test_results_judge_all_that_was_made(made: Path):
    text = (made / "RESULTS.md").read_text(encoding="utf-8")
    assert "Not made yet: `factormer" not in text
    assert all(f"![{name}]({name}.png)" in text for name in FIGURES)
    (count,) = re.findall(r"Of (\d+) verdicts below", text)
    assert 34 <= int(count) <= 54  # a run to convergence is judged where it settles


def test_one_figure_is_added_to_those_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shrink_images(monkeypatch)
    for name in ("faces", "histogram"):
        reproduce([name], data=Path("nowhere"), out=tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))["figures"]
    commands = {name: entry["command"] for name, entry in manifest.items()}
    expected = {n: f"factormer reproduce {n}" for n in ("histogram", "faces")}
    assert commands == expected
    text = (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
    assert "![histogram]" in text
    assert "![faces]" in text


def test_unknown_figure_is_told_with_the_names(tmp_path: Path):
    with pytest.raises(ValueError, match="'jaspar'") as error:
        reproduce(["yale", "jaspar"], data=None, out=tmp_path / "out")
    assert all(name in str(error.value) for name in FIGURES)
    assert not (tmp_path / "out").exists()


def test_real_figure_without_data_says_how_to_get_it(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"Yale_64x64\.mat .* FACTORMER_DATA"):
        reproduce(["ablation", "yale"], data=tmp_path, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_without_data_all_means_all_that_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    quick = Recipe(lambda _: ({}, histogram({"yale": stand_in()})[1]))
    free = {name for name, recipe in FIGURES.items() if not recipe.needs}
    assert free >= {"koenig", "models", "synthetic-small", "synthetic-large", "ablation"}
    for name in free:
        monkeypatch.setitem(FIGURES, name, quick)
    monkeypatch.setattr(command, "write_results", lambda folder, names: folder)
    monkeypatch.delenv("FACTORMER_DATA", raising=False)
    said: list[str] = []
    reproduce(None, data=None, out=tmp_path, report=said.append)
    made = {path.stem for path in tmp_path.glob("*.png")}
    assert made == free
    left = "left out histogram, yale, faces, optimum"
    assert any(left in text and "--data" in text for text in said)


@pytest.fixture
def _small_recipes(monkeypatch: pytest.MonkeyPatch):
    """Figures that can be made again in part, of small matrices."""
    for name in command.LOADERS:
        monkeypatch.setitem(command.LOADERS, name, lambda folder: stand_in())
    draw = partial(real, n_iter=N_ITER)
    monkeypatch.setattr(command, "real", draw)
    monkeypatch.setattr(command, "optimum", partial(optimum, n_iter=N_ITER))
    again = partial(optimum, n_iter=N_ITER)
    monkeypatch.setitem(command.FIGURES, "optimum", Recipe(again, ("yale", "jasper"), again))


@pytest.mark.usefixtures("_small_recipes")
@pytest.mark.parametrize("name", ["yale", "optimum"])
def test_networks_are_measured_again_beside_what_is_there(tmp_path: Path, name: str):
    reproduce([name], data=Path("nowhere"), out=tmp_path)
    whole = json.loads((tmp_path / f"{name}.json").read_text("utf-8"))
    reproduce([name], data=Path("nowhere"), out=tmp_path, only=["init-r10-paper"])
    again = json.loads((tmp_path / f"{name}.json").read_text("utf-8"))
    for numbers in (whole, again):
        rows = numbers.get("contestants", {})
        for row in rows.values():
            del row["seconds"]
        del numbers["seconds"]
    assert again == whole
    entry = json.loads((tmp_path / "manifest.json").read_text("utf-8"))["figures"][name]
    assert entry["only"] == ["init-r10-paper"]
    assert entry["command"] == f"factormer reproduce {name} --only init-r10-paper"


@pytest.mark.usefixtures("_small_recipes")
def test_images_of_the_data_may_be_left_out(tmp_path: Path):
    path = reproduce(["yale", "faces"], data=Path("nowhere"), out=tmp_path, images=False)
    text = path.read_text("utf-8")
    assert "![yale](yale.png)" in text
    assert "do not let us publish them" in text
    assert (tmp_path / "faces.json").is_file()
    assert not (tmp_path / "faces.png").exists()
