"""Mutation catalogues in the page: 96 bars in their usual order, in six colours."""

import base64
import shutil
import subprocess

import numpy as np
import pytest

from factormer.app.read import Axis, Data
from factormer.app.report import write_report
from factormer.app.report.views import Reduction
from factormer.app.runs import FitOptions, RunFolder, fit
from tests.app.read.test_domains import types
from tests.app.report.browser import chromium, needs_browser, show

LABELS = tuple(types())


def test_an_axis_of_mutation_types_is_told_its_order():
    about = Reduction(Axis(96, "mutation type", labels=LABELS), 1200).described()
    assert about["kind"] == "mutations"
    assert sorted(about["mutations"]["order"]) == list(range(96))
    assert [LABELS[i] for i in about["mutations"]["order"][:2]] == ["A[C>A]A", "A[C>A]C"]
    assert "mutations" not in Reduction(Axis(3, "gene", labels=("a", "b", "c")), 1200).described()


COLUMNS = Axis(96, "mutation type", labels=LABELS)


def catalogue(path):
    """The report of a few tumours."""
    random = np.random.default_rng(0)
    V = random.gamma(1.0, size=(8, 2)) @ random.gamma(0.3, size=(2, 96))
    data = Data(V, Axis(8, "tumour"), COLUMNS, "catalogue", "")
    fit(data, [2], FitOptions(max_iter=20), path, command="")
    return write_report(RunFolder(path))


@needs_browser
def test_bars_are_printed(tmp_path):
    pdftoppm = shutil.which("pdftoppm")
    if pdftoppm is None:
        pytest.skip("needs pdftoppm: apt-get install poppler-utils")
    image = pytest.importorskip("PIL.Image")
    with chromium() as driver:
        show(driver, catalogue(tmp_path), scheme="dark")
        pdf = driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"]
    (tmp_path / "page.pdf").write_bytes(base64.b64decode(pdf))
    command = [pdftoppm, "-r", "50", "-png", "page.pdf", "page"]
    subprocess.run(command, cwd=tmp_path, check=True)
    printed = [np.array(image.open(page).convert("RGB")) for page in tmp_path.glob("page-*.png")]
    for colour in ([227, 41, 38], [127, 174, 61], [3, 164, 204]):  # C>T, T>C, C>A
        near = [np.abs(page.astype(int) - colour).max(axis=2) < 30 for page in printed]
        assert sum(int(pixels.sum()) for pixels in near) > 100


@needs_browser
def test_bars_stand_in_their_order(tmp_path):
    catalogue(tmp_path)
    with chromium() as driver:
        show(driver, tmp_path / "report.html", height=1400)
        script = """
            const bars = [...document.querySelectorAll("#picked rect.mutation")];
            return [bars.map((bar) => Number(bar.getAttribute("height"))),
                    [...new Set(bars.map((bar) => bar.getAttribute("fill")))].length,
                    document.querySelectorAll("#cards rect.mutation").length];"""
        heights, n_colours, in_cards = driver.execute_script(script)
        assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []
    assert (len(heights), n_colours, in_cards) == (96, 6, 192)
    order = Reduction(COLUMNS, 1200).described()["mutations"]["order"]
    h = RunFolder(tmp_path).factors(2)["H"][:, 0][order]
    np.testing.assert_allclose(np.array(heights) / max(heights), h / h.max(), atol=0.02)
