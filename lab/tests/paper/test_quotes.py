"""Numbers in the prose of docs/walk.md and docs/paper.md are those of the stored results.

A quote is a piece of a sentence with # in the place of each number. It must occur once, and its
numbers must be the computed ones as far as they are printed.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from factormer_lab.paper.reproduce.claims import accel_claim, init_claim, lowest

DOCS = Path(__file__).parents[3] / "docs"
SIZES = ("small", "large")
INIT, ACCEL = "init-r10-paper", "accel-r10-paper"
NUMBER = r"(\d*\.?\d+)"


@cache
def stored(name: str) -> dict[str, Any]:
    """The numbers of a figure, or of a table of the headline."""
    return json.loads((DOCS / "results" / f"{name}.json").read_text("utf-8"))


@cache
def text_of(page: str) -> str:
    """The text of a page, with single spaces."""
    return " ".join((DOCS / page).read_text("utf-8").split())


def quoted(page: str, quote: str) -> list[str]:
    """The numbers, as they are printed, of the sentence that a quote is a piece of."""
    pattern = NUMBER.join(re.escape(piece) for piece in quote.split("#"))
    (found,) = re.finditer(pattern, text_of(page))
    return list(found.groups())


def rounds_to(value: float, printed: str) -> bool:
    """Whether a number is the printed one, up to half a unit of its last digit."""
    unit = 10.0 ** -len(printed.partition(".")[2])
    return abs(value - float(printed)) <= unit / 2 * (1 + 1e-9)


def synthetic(key: str, of: str, quantile: str, t: int) -> list[float]:
    """A number of an iteration on both validation sets."""
    sets = (stored(f"synthetic-{size}")["contestants"][key] for size in SIZES)
    return [found[of][quantile][t] for found in sets]


def fresh(network: str, t: int, of: str = "network") -> list[float]:
    """The median errors at an iteration on fresh matrices of both sizes."""
    found = stored("readings")["networks"][network]
    return [found[size][of][t] for size in SIZES]


def bars() -> list[float]:
    """The error of AO-ADMM at iteration 20, on both validation sets and on fresh matrices."""
    return [*synthetic("ao-admm", "rmse", "median", 20), *fresh(INIT, 20, "plain")]


def worth() -> list[float]:
    """The iteration at which AO-ADMM is as good as the initialization, on both sets."""
    claims = (init_claim(stored(f"synthetic-{size}"), INIT) for size in SIZES)
    return [float(claim.worth_alone or 0) for claim in claims]


def accelerated() -> list[float]:
    """Ratios of the acceleration to AO-ADMM: largest median and third quartile, and at the end."""
    claims = [accel_claim(stored(f"synthetic-{size}"), ACCEL) for size in SIZES]
    ends = synthetic(ACCEL, "rmse", "median", 50), synthetic("ao-admm", "rmse", "median", 50)
    by_set = [ours / theirs for ours, theirs in zip(*ends, strict=True)]
    return [*(c.median for c in claims), *(c.third_quartile for c in claims), *by_set]


def times_lower() -> list[float]:
    """How many times lower than AO-ADMM's the errors at iteration 5 are, by median."""
    ours, theirs = (synthetic(key, "rmse", "median", 5) for key in (ACCEL, "ao-admm"))
    return [b / a for a, b in zip(ours, theirs, strict=True)]


def first_version(t: int) -> list[float]:
    """Median ratio to AO-ADMM of the acceleration by the paper's recipe, on fresh matrices."""
    found = stored("readings")["networks"][f"{ACCEL}@1"]
    return [found[size]["median"][t - 1] for size in SIZES]


def ends(name: str) -> dict[str, float]:
    """How far the ends of all starts are below that of NNDSVD, in percent, with ρ = tr/r."""
    starts = stored("optimum")["sets"][name]["ρ = tr/r"]
    last = {key: start["rmse"][-1] for key, start in starts.items()}
    return {key: 100 * (1 - error / last["nndsvd"]) for key, error in last.items()}


def ends_of(name: str, *, random: bool) -> list[float]:
    """The ends of random starts, or of networks, from the highest to the lowest."""
    found = ends(name).items()
    return sorted(e for key, e in found if key != "nndsvd" and key.startswith("random") is random)


QUOTES: list[tuple[str, str, Any]] = [
    (
        "walk.md",
        "at once where AO-ADMM is after # iterations on the small set and # on the large one",
        worth,
    ),
    (
        "walk.md",
        "at # of its error or less on the small set and # on the large one in the median, at # and "
        "# or less in three of four matrices from iteration 5 to 20, and at # and # of its median "
        "error at iteration 50",
        accelerated,
    ),
    (
        "walk.md",
        "and at # and # of its error at iteration 5 on [fresh matrices]",
        lambda: first_version(5),
    ),
    ("science.md", "by our recipe, # and # times lower at iteration 5", times_lower),
    (
        "science.md",
        "by the paper's own # and # times",
        lambda: [1 / ratio for ratio in first_version(5)],
    ),
    (
        "walk.md",
        "on Yale every start ends within # % of NNDSVD",
        lambda: [max(map(abs, ends("yale").values()))],
    ),
    (
        "walk.md",
        "On Jasper Ridge the networks end # to # % below NNDSVD",
        lambda: [e(ends_of("jasper", random=False)) for e in (min, max)],
    ),
    (
        "walk.md",
        "layers # % (initialization) and # % (acceleration)",
        lambda: [ends("jasper")[key] for key in (INIT, ACCEL)],
    ),
    (
        "walk.md",
        "random starts end # to # % below it",
        lambda: [e(ends_of("jasper", random=True)) for e in (min, max)],
    ),
    (
        "walk.md",
        "it draws # of the # edges",
        lambda: [len(drawn()), len(stored("example")["edges"])],
    ),
    (
        "walk.md",
        "(V = #) and all three of the second row (#, #, #) are missing",
        lambda: [V for _, _, V in stored("example")["not in the paper's figure"]],
    ),
    (
        "paper.md",
        "RMSE # at iteration 20, # at 50",
        lambda: [stored("jasper")["contestants"]["ao-admm"]["rmse"][t] for t in (20, 50)],
    ),
    (
        "paper.md",
        "at iteration 20: # and # on our two fixed validation sets of small and large matrices, "
        "# and # on 128 fresh matrices of each size",
        bars,
    ),
    ("paper.md", "meets it at once: # and # on the fresh matrices", lambda: fresh(INIT, 0)),
    (
        "paper.md",
        "(version 3, all 225 000 updates) it reaches # and # at once",
        lambda: fresh(f"{INIT}@3", 0),
    ),
    ("paper.md", "first weights (version 2), # and #, and one", lambda: fresh(f"{INIT}@2", 0)),
    (
        "paper.md",
        "(`init-r10-literal`) reach # and # at once, and # and # one iteration later",
        lambda: [*fresh("init-r10-literal@1", 0), *fresh("init-r10-literal@1", 1)],
    ),
    (
        "paper.md",
        "The refining variant is below the bar at once, # and #",
        lambda: fresh("init-r10", 0),
    ),
    ("refining.md", "at iteration 20, is # / # on these sets", lambda: bars()[:2]),
]


def drawn() -> list[Any]:
    """The edges of the example that the paper's figure has."""
    example = stored("example")
    return [edge for edge in example["edges"] if edge not in example["not in the paper's figure"]]


@pytest.mark.parametrize(
    ("page", "quote", "computed"), QUOTES, ids=[f"{page}: {quote}" for page, quote, _ in QUOTES]
)
def test_a_number_in_prose_is_that_of_the_results(page, quote, computed):
    printed, values = quoted(page, quote), computed()
    wrong = [
        f"{text}, which is {value:.6g}"
        for text, value in zip(printed, values, strict=True)
        if not rounds_to(value, text)
    ]
    assert not wrong


# Claims in words


def test_the_initialization_stays_ahead_to_the_end():
    assert "and stays ahead to the end" in text_of("walk.md")
    for size in SIZES:
        found = stored(f"synthetic-{size}")["contestants"]
        ours, theirs = (found[key]["rmse"]["median"] for key in (INIT, "ao-admm"))
        assert all(x < y for x, y in zip(ours, theirs, strict=True))


def test_the_acceleration_is_below_ao_admm_from_the_first_iteration_on():
    assert "is below AO-ADMM from the first iteration on" in text_of("walk.md")
    for size in SIZES:
        ratio = stored(f"synthetic-{size}")["contestants"][ACCEL]["ratio"]["median"]
        assert all(x < 1 for x in ratio[1:])
    assert "By the paper's own recipe (version 1) it was above AO-ADMM at" in text_of("walk.md")
    assert all(x > 1 for x in first_version(1))


@pytest.mark.parametrize("size", SIZES)
def test_the_acceleration_is_below_ao_admm_on_fresh_matrices_and_never_above_it_if_judged(size):
    taken, judged = (
        stored(name)["networks"][ACCEL][size] for name in ("readings", "headline-after")
    )
    assert max(taken["median"]) < 1
    assert max(taken["third_quartile"][:20]) < 1
    assert taken["median"][4] <= 0.5
    assert max(judged["largest"]) <= 1
    assert judged["median"][4] <= 0.7


@pytest.mark.parametrize("name", ["yale", "jasper"])
def test_with_the_papers_penalty_ao_admm_passes_a_minimum(name):
    assert "on both it passes a minimum and then rises" in text_of("walk.md")
    row = stored(name)["contestants"]["ao-admm"]
    least, at = lowest(row)
    assert 0 < at < len(row["rmse"]) // 2
    assert row["rmse"][-1] > least


@pytest.mark.parametrize("name", ["yale", "jasper"])
def test_on_real_data_the_initialization_is_worth_three_iterations(name):
    said = "is worth three iterations on either matrix, where it is worth more than thirty on"
    assert said in text_of("walk.md")
    found = stored(name)["contestants"]
    start = found[INIT]["rmse"][0]
    reached = (t for t, error in enumerate(found["ao-admm-trace"]["rmse"]) if error <= start)
    assert next(reached) == 3
    assert min(worth()) > 30


def test_random_starts_end_as_low_as_learned_ones_on_faces_and_gain_more_than_half_elsewhere():
    assert "random starts end as low as the learned ones: the gain is speed" in text_of("walk.md")
    assert "so less than half of that gain is the networks'" in text_of("walk.md")
    assert max(ends_of("yale", random=True)) >= max(ends_of("yale", random=False))
    networks, random = (ends_of("jasper", random=chance) for chance in (False, True))
    assert sum(random) / len(random) > sum(networks) / len(networks) / 2
