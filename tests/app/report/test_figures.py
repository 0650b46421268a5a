"""`factormer report --figures`: every chart as SVG and PDF."""

import xml.etree.ElementTree as ElementTree

import pytest

from factormer.app.cli import main
from factormer.app.report.figures import write_figures
from factormer.app.runs import FitOptions, RunFolder, fit
from factormer.app.runs.references import References, compare_rank
from factormer.app.runs.select import choose_rank, keep_choice
from tests.app.runs import cases

pytest.importorskip("matplotlib")


def names(written):
    assert {path.suffix for path in written} == {".svg", ".pdf"}
    for path in written:
        if path.suffix == ".svg":
            ElementTree.parse(path)
        else:
            assert path.read_bytes().startswith(b"%PDF")
    return {path.stem for path in written}


def test_all_that_a_run_was_asked_is_drawn(tmp_path):
    options = FitOptions(
        loss="kullback-leibler", repeats=3, resample="poisson", holdout=0.25, max_iter=20
    )
    fit(cases.counts(), [2, 3], options, tmp_path)
    keep_choice(choose_rank(cases.counts(), FitOptions(), mask=None, weights=None), tmp_path)
    found = names(write_figures(RunFolder(tmp_path), tmp_path / "figures"))
    by_rank = {"error-by-rank", "stability-by-rank", "probability-by-rank", "convergence"}
    assert by_rank <= found
    for rank in (2, 3):
        parts = ("components", "consensus", "cosines", "residual")
        assert {f"rank-{rank}-{part}" for part in parts} <= found


@pytest.mark.parametrize("kind", ["images", "cube", "sound", "holes", "topics"])
def test_every_kind_of_component_is_drawn(tmp_path, kind):
    fit(getattr(cases, kind)(), [1, 3], FitOptions(max_iter=5), tmp_path)
    found = names(write_figures(RunFolder(tmp_path), tmp_path / "figures"))
    assert {"rank-1-components", "rank-3-components", "error-by-rank"} <= found
    assert ("rank-3-use" in found) == (kind in ("cube", "sound"))


def test_mutations_have_their_colours_and_references_stand_beside_them(tmp_path):
    data = cases.mutations()
    fit(data, [2], FitOptions(max_iter=20), tmp_path)
    folder = RunFolder(tmp_path)
    compare_rank(folder, 2, References("rows", ("SBS1", "SBS2"), folder.factors(2)["W"][:, ::-1]))
    write_figures(folder, tmp_path / "figures")
    text = (tmp_path / "figures" / "rank-2-components.svg").read_text()
    for colour in ("#03a4cc", "#e32926", "#7fae3d"):
        assert colour in text
    assert ">component 1: SBS2<" in text
    assert ">C&gt;A<" in text


def test_the_command_writes_them_beside_the_page(tmp_path, capsys):
    fit(cases.cube(), [2], FitOptions(max_iter=5), tmp_path / "run")
    assert main(["report", str(tmp_path / "run"), "--figures", str(tmp_path / "paper")]) == 0
    assert f"10 files in {tmp_path / 'paper'}" in capsys.readouterr().out
    once = (tmp_path / "paper" / "rank-2-use.svg").read_bytes()
    assert main(["report", str(tmp_path / "run"), "--figures", str(tmp_path / "paper")]) == 0
    assert (tmp_path / "paper" / "rank-2-use.svg").read_bytes() == once
