"""Mutation catalogues in the page: 96 bars in their usual order, in six colours."""

import numpy as np

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


@needs_browser
def test_bars_stand_in_their_order(tmp_path):
    random = np.random.default_rng(0)
    V = random.gamma(1.0, size=(8, 2)) @ random.gamma(0.3, size=(2, 96))
    columns = Axis(96, "mutation type", labels=LABELS)
    data = Data(V, Axis(8, "tumour"), columns, "catalogue", "")
    fit(data, [2], FitOptions(max_iter=20), tmp_path, command="")
    write_report(RunFolder(tmp_path))
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
    order = Reduction(columns, 1200).described()["mutations"]["order"]
    h = RunFolder(tmp_path).factors(2)["H"][:, 0][order]
    np.testing.assert_allclose(np.array(heights) / max(heights), h / h.max(), atol=0.02)
