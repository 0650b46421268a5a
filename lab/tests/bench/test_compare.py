"""The comparison of two versions: its statistics, its processes and its report, without a clock."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import factormer
from factormer_lab.bench import compare, ratios, versions
from factormer_lab.bench.versions import NoAnswerError, Process, Version

SOURCE = Path(factormer.__file__).parents[1]


@pytest.fixture(scope="module")
def here(tmp_path_factory) -> Iterator[Version]:
    """Return the version that is being tested, in its own environment."""
    plain = Version.environment

    def environment(self, cache=None):
        variables = plain(self, cache) | {"PYTHONPATH": str(SOURCE)}
        del variables["NUMBA_CACHE_DIR"]  # what was compiled before is taken
        return variables

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Version, "environment", environment)
        yield Version("here", Path(sys.executable), tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def same(here, tmp_path_factory) -> Iterator[compare.Comparison]:
    """Return a comparison of that version with itself, in few pairs."""
    folder = tmp_path_factory.mktemp("matrices")
    made = compare.Comparison([here, here], folder, pairs=3, limit=60.0)
    yield made
    made.end()


def test_the_interval_holds_the_median_as_often_as_it_says():
    rng = np.random.default_rng(0)
    for pairs in (15, 30, 60):
        drawn = [ratios.confident(rng.lognormal(0, 0.2, pairs).tolist()) for _ in range(2000)]
        assert all(one.low <= one.median <= one.high for one in drawn)
        assert np.mean([one.low <= 1 <= one.high for one in drawn]) >= 0.94


def test_few_ratios_have_their_range_for_an_interval():
    assert ratios.confident([1.2, 0.9, 1.0]) == (1.0, 0.9, 1.2, 3)


@pytest.mark.parametrize(
    ("centre", "verdict"), [(0.8, "slower"), (0.96, ""), (1.0, ""), (1.3, "faster")]
)
def test_the_verdict_needs_the_whole_interval(centre, verdict):
    spread = centre * np.linspace(0.97, 1.03, 15)
    assert ratios.confident(spread.tolist()).verdict == verdict


def test_pairs_are_made_in_both_orders_until_their_interval_is_narrow():
    order = []
    rng = random.Random(0)

    def turn(name, scatter):
        return lambda: order.append(name) or 1 + scatter * rng.random()

    def count(scatter, late=lambda pairs: False):
        pairs = ratios.paired(
            turn("old", scatter),
            turn("new", scatter),
            coin=rng.random,
            least=15,
            most=60,
            width=1.06,
            late=late,
        )
        return len(pairs)

    assert count(0.01) == 15
    assert order[::2].count("old") not in (0, 15)
    assert sorted(order[:2]) == sorted(order[2:4]) == ["new", "old"]
    assert count(5.0) == 60
    assert count(5.0, late=lambda pairs: pairs >= 5) == 5


def test_one_version_beside_itself_takes_the_same_steps_to_the_same_error(same):
    rows = list(compare.to_targets("race", "race-small:2")(same))
    rows += compare.by_default("race-small:2")(same)
    assert [row.get("to") for row in rows] == ["1 %", "0.1 %", None]
    for row in rows:
        assert row["old"]["error"] == row["new"]["error"]
        assert row["old"]["iterations"] == row["new"]["iterations"]
        assert not row.get("never")
        ratio = row["ratio"]
        assert 3 <= ratio["pairs"] <= 12
        assert 0 < ratio["low"] <= ratio["median"] <= ratio["high"]
        assert all(row[side]["seconds"] > 0 for side in compare.SIDES)


@pytest.mark.parametrize("key", ["many", "kl", "replicates", "transform", "import"])
def test_each_group_has_a_row(same, key):
    task = {
        "many": compare.together(4),
        "kl": compare.to_targets("kl", "race-small:2", beta_loss="kullback-leibler"),
        "replicates": compare.replicates("race-small:2", 3),
        "transform": compare.transform(20, 10, 2, 0.5),
        "import": compare.anew("nothing", compare.IMPORT, "pass", empty=True),
    }[key]
    rows = list(task(same))
    assert rows
    for row in rows:
        assert row["old"].get("error") == pytest.approx(row["new"].get("error"))
        assert compare.line(row).count("|") == compare.HEAD.partition("\n")[0].count("|")


def test_the_fewest_iterations_are_found_by_few_calls():
    asked = []

    def ask(k):
        asked.append(k)
        return {"error": 1 / k, "seconds": 0.0}

    curve = compare.Curve(ask)
    for k in (1, 10, 100, 1000):
        curve.error(k)
    assert curve.fewest(1 / 137) in range(137, 145)
    assert curve.fewest(1 / 7) == 7
    assert len(asked) == len(set(asked)) < 16


def test_a_version_that_never_reaches_the_target_is_slower(here, tmp_path, monkeypatch):
    comparison = compare.Comparison([here, here], tmp_path / "matrices", pairs=3, limit=60.0)
    comparison.best = {}

    def ask(side, job, **how):
        error = max(1.0 / job["max_iter"], 0.02 * (1 + side))
        return {"seconds": 1.0, "error": error, "iterations": job["max_iter"]}

    monkeypatch.setattr(comparison, "ask", ask)
    rows = list(compare.to_targets("race", "race-small:10")(comparison))
    comparison.end()
    assert [row["never"] for row in rows] == [["new"], ["new"]]
    assert [row["verdict"] for row in rows] == ["slower", "slower"]
    assert rows[0]["target"] == pytest.approx(1.01 * 0.04)
    assert [rows[0][side]["iterations"] for side in compare.SIDES] == [25, 25]
    report = compare.report({"race/race-small:10": rows}, facts())
    assert "Slower or failed: race-small:10 1 %; race-small:10 0.1 %" in report
    assert "new never to 1 %" in report


def facts():
    return {"pairs": 3, "old": {"name": "a"}, "new": {"name": "b"}}


def test_what_goes_wrong_in_a_process_is_told(here):
    process = Process(here)
    with pytest.raises(NoAnswerError, match="KeyError"):
        process.ask({"kind": "unheard"}, 60.0, repeat=1, warm=False, judge=False)
    process._pipe.kill()
    with pytest.raises(NoAnswerError, match="process ended"):
        process.ask({"kind": "fit"}, 60.0, repeat=1, warm=False, judge=False)
    process.end()


def test_finished_rows_are_kept_and_not_made_again(same, tmp_path, capsys):
    made = []

    def task(comparison):
        made.append("row")
        yield comparison.interleaved(lambda: 1.0, lambda: 1.0, case="constant")

    def failing(comparison):
        raise NoAnswerError("no")

    asked = {"race/constant": task, "race/failing": failing}
    kept = tmp_path / "rows.json"
    first = compare.compare(same, asked, kept)
    again = compare.compare(same, asked, kept)
    assert made == ["row"]
    assert json.dumps(first) == json.dumps(again)
    assert first["race/failing"][0]["verdict"] == "failed"
    assert "Slower or failed: race/failing" in compare.report(first, facts())
    assert "kept from before" in capsys.readouterr().out


def test_cases_are_chosen_by_the_beginning_of_their_keys():
    every = dict.fromkeys(["race/a:1", "race/b:2", "kl/a:1"], compare.by_default("a:1"))
    assert list(compare.chosen(every, ["race/b", "kl"])) == ["race/b:2", "kl/a:1"]
    assert list(compare.chosen(every, [])) == list(every)
    with pytest.raises(SystemExit, match="groups are race, kl"):
        compare.chosen(every, ["rce"])


def test_matrices_are_kept_as_they_are(same, tmp_path):
    V = scipy.sparse.csr_array(np.random.default_rng(0).poisson(0.2, (30, 20)))
    path = tmp_path / "V.npz"
    compare._kept(path, V)
    assert (scipy.sparse.load_npz(path) != V).nnz == 0
    dense = np.load(same.file("race-small:10"))
    assert dense.mean() == pytest.approx(1)


def test_the_working_tree_is_named_by_what_the_package_would_be(tmp_path):
    def git(*words):
        subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    git("config", "user.email", "nobody@example.org")
    git("config", "user.name", "Nobody")
    (tmp_path / "code.py").write_text("1\n")
    git("add", ".")
    git("commit", "-qm", "First")
    commit = versions.named("HEAD", tmp_path)
    assert versions.named(None, tmp_path) == commit
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "log.md").write_text("no part of the package\n")
    assert versions.named(None, tmp_path) == commit
    (tmp_path / "new.py").write_text("2\n")
    changed = versions.named(None, tmp_path)
    assert changed[0].startswith("tree-")
    assert versions.named(None, tmp_path) == changed
    listed = versions.git("ls-tree", "-r", "--name-only", changed[1], cwd=tmp_path)
    assert listed.split() == ["code.py", "new.py"]
