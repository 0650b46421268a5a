"""Sections of RESULTS.md from the measurements on fresh matrices, made by `paper.headline`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from factormer_lab.paper.reproduce.sections import number, table

READINGS, AFTER = "readings.json", "headline-after.json"  # in the folder of RESULTS.md
_STARTS, _RATIOS = (0, 1, 5, 20), (1, 2, 5, 10, 20, 50)
_SETS = ("small", "large")


def readings_section(measured: Mapping[str, Any]) -> list[str]:
    """Tell what each reading of the initialization, and each recipe, made of it."""
    lines = [
        "## Readings of the initialization",
        "",
        "What the paper leaves open, and what each choice made of the initialization: the sharing "
        "of weights, T and the loss, the recipe. Median RMSE on "
        f"{measured.get('count', 'some')} fresh matrices of the sizes of each validation set, "
        "which no training and no choice has seen, at iterations "
        f"{', '.join(map(str, _STARTS))}. Former versions are in `lab/released`. Only one seed of "
        "version 4 was trained. It has also seen matrices of 30 to 100 rows and columns, beyond "
        "the paper's table of training matrices; the large set has up to 200.",
        "",
    ]
    networks = measured.get("networks", {})
    starts = {name: found for name, found in networks.items() if "network" in found["small"]}
    if not starts:
        return [*lines, _how(READINGS)]
    rows = [
        (
            f"`{found['name']}`, version {found['version']}",
            *_trained(found),
            *(" ".join(_short(found[size]["network"][k]) for k in _STARTS) for size in _SETS),
        )
        for found in starts.values()
    ]
    plain = next(iter(starts.values()))
    bars = (" ".join(_short(plain[size]["plain"][k]) for k in _STARTS) for size in _SETS)
    rows.append(("AO-ADMM from NNDSVD", *[""] * 5, *bars))
    heads = ["network", "layers", "weights", "loss", "batch", "updates, seconds on one H200"]
    return lines + table([*heads, *_SETS], rows)


def safeguard_section(measured: Mapping[str, Any], judged: Mapping[str, Any]) -> list[str]:
    """Tell how an acceleration compares with AO-ADMM, by what judges its proposals."""
    lines = [
        "## What the safeguard does",
        "",
        'Ratio to AO-ADMM on the same fresh matrix. "All": every proposal is taken, as in the '
        'paper. "After an iteration", the default of the package: a proposal is kept where an '
        "iteration from it leads no higher than one from the solver's own point; beside an "
        "acceleration the plain run goes on, and the better of the two counts. A start has no "
        "plain run beside it, and may end in another optimum.",
        "",
    ]
    rows = []
    for said, found in (("all", measured), ("after an iteration", judged)):
        for network in found.get("networks", {}).values():
            for size in _SETS:
                for what in ("median", "third_quartile", "largest"):
                    rows += _ratios(network, size, what, said)
    heads = ["network", "set", "proposals taken", "of the ratios", *(f"at {t}" for t in _RATIOS)]
    return lines + (table(heads, rows) or [_how(READINGS), "", _how(AFTER)])


def _ratios(
    network: Mapping[str, Any], size: str, what: str, said: str
) -> list[tuple[object, ...]]:
    values = network[size].get(what)
    if values is None or ("network" in network[size] and said == "all"):
        return []
    first = 0 if "network" in network[size] else 1
    shown = (number(values[t - first], 3) for t in _RATIOS)
    name = f"`{network['name']}`, version {network['version']}"
    return [(name, size, said, what.replace("_", " "), *shown)]


def _trained(found: Mapping[str, Any]) -> tuple[object, ...]:
    """Say the layers, their weights, the loss, the batch and the cost of a training."""
    recipe = found["recipe"]
    papers = found["layers"] == "paper"
    loss = f"T = {recipe['n_steps']}, " if "n_steps" in recipe else ""
    loss += "logarithm" if recipe.get("objective") == "log" else "squared"
    if papers and not recipe.get("alive"):
        loss += ", first weights as drawn"
    batch = recipe.get("batch", "")
    return (
        "the paper's" if papers else "ours (refining)",
        "shared by pairs" if found["shared"] else "of each layer's own",
        loss,
        f"{batch} (the paper's recipe)" if batch == 1 else batch,
        f"{found['updates']}, {found['seconds']}" if papers else "last of two stages",
    )


def _short(x: float) -> str:
    """A number with four decimals, without the zero before them."""
    return f"{x:.4f}".removeprefix("0")


def _how(name: str) -> str:
    judge = " --safeguard after" if name == AFTER else ""
    command = f"python -m factormer_lab.paper.headline NETWORK …{judge} --out FOLDER/{name}"
    return f"Not made yet: `{command}`."
