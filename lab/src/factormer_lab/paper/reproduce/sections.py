"""Sections of RESULTS.md that say what the networks are, and where they lead in the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from factormer.nn.factormer import ModelConfig
from factormer.nn.zoo import Card, models
from factormer_lab.paper.reproduce.claims import Verdict
from factormer_lab.paper.reproduce.optimum import at_looks, settled

_CLEARLY = 1e-3  # an error below another by less is the same optimum
_PAPERS_RECIPE = {"batch": 1, "copies": 1, "epochs": 15, "objective": "squared", "gamma": 0.2}


def networks_section() -> list[str]:
    """Tell of each network of rank 10 its layers, its recipe, and how far it was trained."""
    cards = [card for card in models().values() if isinstance(card.config, ModelConfig)]
    heads = ["network", "use", "layers", "recipe", "updates", "batch", "sees"]
    return [
        "## The networks",
        "",
        'From their cards. "Ours" are this project\'s own layers and recipes: what they reach says '
        "nothing of the paper's.",
        "",
        *table(heads, [_network(card) for card in cards]),
    ]


def _network(card: Card) -> tuple[str, ...]:
    assert isinstance(card.config, ModelConfig)
    training, options = card.training, card.training.get("options", {})
    is_papers = all(options.get(key) == value for key, value in _PAPERS_RECIPE.items())
    updates = str(card.course.get("steps", "unknown")).partition(":")[0]  # of how many, if stopped
    return (
        f"`{card.name}`, version {card.version}",
        "start" if card.use == "init" else "acceleration",
        "the paper's" if card.config.variant == "paper" else "ours (refining)",
        _papers_recipe(options) if is_papers else "ours",
        updates + (", after another stage" if "begun from" in training else ""),
        str(options.get("batch", "unknown")),
        "V over its mean" if card.config.normalize else "V as it is",
    )


def _papers_recipe(options: Mapping[str, Any]) -> str:
    """The paper's recipe, and how what it leaves open was settled."""
    begun = ", no component dead at first" if options.get("alive") else ""
    return f"the paper's (app. A): T = {options['n_steps']}{begun}"


def optimum_section(figures: Mapping[str, Mapping[str, Any]], verdicts: list[Verdict]) -> list[str]:
    """Claim 3, judged at convergence, with random starts as control."""
    lines = [
        "## A better local optimum?",
        "",
        "The same starts, carried on until the error hardly changes, and random starts as control: "
        "another start ends in another optimum by itself. Met where the error at the end is more "
        f"than {_CLEARLY:.1%} below both that of NNDSVD and the median of the random starts, with "
        "the same penalty. There is no verdict where the run, or that of NNDSVD, does not settle: "
        "where its error rose in the last hundred iterations, or fell by more than 1 %.",
        "",
    ]
    if "optimum" not in figures:
        return [*lines, "Not made yet: `factormer reproduce optimum`."]
    numbers = figures["optimum"]
    looks, rows = numbers["iterations"], []
    for name, penalties in numbers["sets"].items():
        for penalty, starts in penalties.items():
            rows += _ends(name, penalty, starts, looks, verdicts)
    heads = ["set", "penalty", "start", *(f"at {t}" for t in looks), "last 100 fell by"]
    return lines + table([*heads, "against NNDSVD", "random starts as low", "met"], rows)


def _ends(
    name: str,
    penalty: str,
    starts: Mapping[str, Any],
    looks: Sequence[int],
    verdicts: list[Verdict],
) -> list[tuple[object, ...]]:
    ends = {key: start["rmse"][-1] for key, start in starts.items()}
    control = [end for key, end in ends.items() if key.startswith("random")]
    bound = (1 - _CLEARLY) * min(ends["nndsvd"], median(control))
    rows: list[tuple[object, ...]] = []
    for key, start in starts.items():
        if key.startswith("random"):
            continue
        verdict: Verdict | str = "–"
        if key != "nndsvd" and all(_settles(starts[k], looks) for k in (key, "nndsvd")):
            verdict = Verdict(ends[key], bound)
            verdicts.append(verdict)
        errors = [number(e) for e in at_looks(start, list(looks))]
        as_low = sum(end <= ends[key] for end in control)
        change = f"{ends[key] / ends['nndsvd'] - 1:+.2%}"
        fell = f"{settled(start, list(looks)):.2%}"
        row = (name, penalty, start["label"], *errors, fell, change, f"{as_low} of {len(control)}")
        rows.append((*row, verdict))
    best, worst = min(control), max(control)
    spread = f"{number(best)} to {number(worst)}"
    blank = [""] * (len(looks) - 1)
    rows.append((name, penalty, f"{len(control)} random starts", *blank, spread, "", "", "", "–"))
    return rows


def _settles(start: Mapping[str, Any], looks: Sequence[int]) -> bool:
    return -_CLEARLY <= settled(dict(start), list(looks)) <= 0.01


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """A table in Markdown; none without rows."""
    if not rows:
        return []
    lines = [heads, ["---"] * len(heads), *rows]
    return ["| " + " | ".join(str(cell) for cell in line) + " |" for line in lines]


def number(x: float | None, digits: int = 4) -> str:
    """A number with so many digits."""
    return "not finite" if x is None or x == float("inf") else f"{x:.{digits}g}"
