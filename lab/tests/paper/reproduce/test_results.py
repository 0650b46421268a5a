"""RESULTS.md on numbers made by hand."""

import json
from pathlib import Path

from factormer_lab.paper.reproduce.command import FIGURES
from factormer_lab.paper.reproduce.results import page, write_results
from lab.tests.paper.reproduce.cases import real_numbers, synthetic_numbers

NAMES = list(FIGURES)


def rows_of(text: str, heading: str) -> list[str]:
    """The rows of the first table below a heading, its head left out."""
    _, _, below = text.partition(heading + "\n")
    lines = below.split("\n#")[0].splitlines()
    return [line for line in lines if line.startswith("|")][2:]


def test_all_met():
    text = page({"synthetic-small": synthetic_numbers(level=0.01)}, {}, NAMES)
    assert "not met" not in text
    assert "Of 10 verdicts below, 10 are met." in text


def test_not_met_where_the_numbers_say_so():
    text = page({"synthetic-large": synthetic_numbers(level=0.06, ratio=1.2)}, {}, NAMES)
    init = rows_of(text, "## Learned initialization")
    assert [row.count("**not met**") for row in init] == [1, 1]  # alone; not with one iteration
    assert [row.count("**not met**") for row in rows_of(text, "## Learned acceleration")] == [
        2,
        2,
        2,
    ]
    assert "Of 10 verdicts below, 2 are met." in text


def test_real_table_has_both_baselines():
    ends = {
        "ao_admm": 0.9,
        "ao_admm_trace": 0.4,
        "init_r10": 0.5,
        "accel_r10_always": None,
    }
    text = page({"yale": real_numbers(**ends)}, {}, NAMES)
    rows = {row.split(" | ")[0].strip("| "): row for row in rows_of(text, "### Yale faces")}
    assert "| met | no | 80% | 3 | 0.01 | 300 |" in rows["init-r10"]
    assert "not finite" in rows["accel-r10-always"]
    assert "**not met**" in rows["accel-r10-always"]
    assert "ends at 0.9 after 0.8 at iteration 1: it does not converge here" in text
    assert "25.0% above the 0.4 that ρ = tr/r reaches" in text


def test_idle_networks_are_no_success():
    numbers = real_numbers()
    numbers["contestants"]["accel-r10"]["kept"] = 0.0
    text = page({"jasper": numbers}, {}, NAMES)
    assert "**not met** (no proposal kept)" in text
    assert "1 of the others belong to runs whose safeguard dropped every proposal" in text


def test_what_was_not_made_is_told():
    text = page({}, {}, NAMES)
    for name in ("synthetic-small", "synthetic-large", "yale", "jasper"):
        assert f"Not made yet: `factormer reproduce {name}`." in text
    assert "| set |" not in text


def test_page_is_written_from_the_files_present(tmp_path: Path):
    (tmp_path / "yale.json").write_text(json.dumps(real_numbers()))
    (tmp_path / "other.json").write_text("no JSON at all")
    text = write_results(tmp_path, NAMES).read_text(encoding="utf-8")
    assert "![yale](yale.png)" in text
    assert "![jasper]" not in text


def test_reason_stands_in_place_of_a_picture_that_is_withheld():
    entry = {"seconds": 1.0, "factormer": "0", "commit": "", "machine": {"cpu": "x", "cores": 1}}
    manifest = {"figures": {"yale": {**entry, "withheld": "Not ours to show."}}}
    text = page({"yale": real_numbers()}, manifest, NAMES)
    assert "Not ours to show." in text
    assert "yale.png" not in text


def test_optimum_is_met_below_nndsvd_and_the_random_starts_alone():
    def start(end: float) -> dict:
        return {"label": "made up", "rmse": [2 * end, end * 1.005, end]}

    for ours, random, met in ((0.9, 1.0, True), (0.9, 0.8, False), (0.9995, 1.0, False)):
        starts = {"nndsvd": start(1.0), "init-r10": start(ours), "random-0": start(random)}
        numbers = {"iterations": [20, 600], "sets": {"yale": {"ρ = 1": starts}}}
        rows = rows_of(page({"optimum": numbers}, {}, NAMES), "## A better local optimum?")
        assert rows[1].endswith("| met |" if met else "| **not met** |")
        assert "0.50%" in rows[1]
        assert f"{int(random <= ours)} of 1" in rows[1]
    starts["nndsvd"]["rmse"][1] = 0.9  # it rose since: there is nothing to judge by
    rows = rows_of(page({"optimum": numbers}, {}, NAMES), "## A better local optimum?")
    assert rows[1].endswith("| – |")


def test_every_network_of_rank_10_is_told_for_what_it_is():
    rows = rows_of(page({}, {}, NAMES), "## The networks")
    ours = [row for row in rows if row.startswith("| `init-r10`")]
    assert len(ours) == 1
    assert "ours (refining) | ours" in ours[0]
