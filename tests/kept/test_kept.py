"""Files of every release since 0.1 are read by this version, and give what they gave."""

import importlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from factormer import NMF
from factormer.app.cli import main
from factormer.app.runs.folder import RunFolder
from factormer.app.runs.stored import SCHEMA
from tests.kept.write import table

RELEASES = sorted(Path(__file__).parent.glob("v*"))


@pytest.fixture(params=RELEASES, ids=lambda folder: folder.name)
def kept(request, tmp_path, monkeypatch) -> Path:
    """A copy of the files of a release, in the present folder."""
    shutil.copytree(request.param, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_saved_model_is_loaded(kept):
    model = NMF.load(kept / "model.safetensors")
    expected = np.load(kept / "coefficients.npy")
    np.testing.assert_allclose(model.transform(table()), expected, rtol=1e-6, atol=1e-9)
    assert (model.alpha_W, model.l1_ratio, model.n_components) == (1e-4, 0.5, 2)


def test_a_saved_stream_goes_on(kept):
    model = NMF.load(kept / "stream.safetensors").partial_fit(table()[6:])
    assert model.n_steps_ == 2
    assert np.isfinite(model.components_).all()


def test_the_report_of_a_run_is_made_again(kept):
    assert main(["report", "run"]) == 0
    assert (kept / "run" / "report.html").stat().st_size > 10_000


def test_a_run_is_applied_to_new_rows(kept, capsys):
    assert main(["transform", "table.csv", "--model", "run", "--rank", "2", "--json"]) == 0
    json.loads(capsys.readouterr().out)


def test_a_run_is_continued_and_keeps_what_is_done(kept, capsys):
    before = RunFolder(kept / "run").factors(2)
    command = ["fit", "table.csv", "--rank", "1..3", "--out", "run", "--loss", "kl", "--json"]
    assert main(command) == 0
    assert [r["rank"] for r in json.loads(capsys.readouterr().out)["results"]] == [1, 2, 3]
    after = RunFolder(kept / "run").factors(2)
    np.testing.assert_array_equal(after["W"], before["W"])


@pytest.mark.parametrize("schema", [SCHEMA + 1, "2", None])
def test_a_run_of_a_later_version_is_refused(kept, schema: Any, capsys):
    path = kept / "run" / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": schema}))
    assert main(["report", "run"]) == 1
    assert "use the version that wrote it, or a later one" in " ".join(
        capsys.readouterr().err.split()
    )


NAMES = json.loads(Path(__file__).with_name("names.json").read_text())


@pytest.mark.parametrize("release", NAMES)
def test_public_names_can_be_imported(release):
    for module, names in NAMES[release].items():
        there = importlib.import_module(module)
        assert [name for name in names if not hasattr(there, name)] == []


def test_this_release_has_its_files():
    """Write them before it is released: `python -m tests.kept.write`."""
    from factormer import __version__

    release = ".".join(__version__.split(".")[:2])
    assert f"v{release}" in [folder.name for folder in RELEASES]
    assert release in NAMES
