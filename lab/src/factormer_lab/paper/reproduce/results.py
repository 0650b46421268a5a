"""RESULTS.md: our numbers and the paper's claims, from the JSON files in a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from factormer.data.files import write
from factormer_lab.paper.reproduce.claims import (
    BASELINE,
    TRACE,
    Verdict,
    accel_claim,
    init_claim,
    last,
    lowest,
    real_claim,
)
from factormer_lab.paper.reproduce.readings import (
    AFTER,
    READINGS,
    readings_section,
    safeguard_section,
)
from factormer_lab.paper.reproduce.sections import (
    carried_section,
    claims_section,
    networks_section,
    number,
    optimum_section,
    table,
)

Figures = dict[str, dict[str, Any]]

SETS = {"synthetic-small": "small", "synthetic-large": "large"}
REAL = {"yale": "Yale faces", "jasper": "Jasper Ridge"}
INIT_NETWORKS = ("init-r10-paper", "init-r10")
ACCELERATIONS = {
    "accel-r10-paper": ("accel-r10-paper", "Always (the paper)"),
    "accel-r10": ("accel-r10", "Descent (judged at once)"),
    "accel-r10-always": ("accel-r10", "Always"),
}
AROUND_TRACE = tuple(f"{key}-trace" for key in (*INIT_NETWORKS, "accel-r10-paper"))
UNJUDGED = (BASELINE, TRACE, *AROUND_TRACE)


def write_results(folder: Path, names: Sequence[str]) -> Path:
    """Write the page from the figures among `names` whose numbers are in the folder."""
    figures = {n: _read(folder / f"{n}.json") for n in names if (folder / f"{n}.json").is_file()}
    manifest_path = folder / "manifest.json"
    manifest = _read(manifest_path) if manifest_path.is_file() else {}
    measured = {
        name: _read(folder / name) for name in (READINGS, AFTER) if (folder / name).is_file()
    }
    path = folder / "RESULTS.md"
    write(path, page(figures, manifest, names, measured))
    return path


def page(
    figures: Figures,
    manifest: dict[str, Any],
    names: Sequence[str],
    measured: Mapping[str, Any] | None = None,
) -> str:
    """The page as Markdown; a section whose figures were not made says how to make them."""
    verdicts: list[Verdict] = []
    fresh, judged = ((measured or {}).get(name, {}) for name in (READINGS, AFTER))
    sections = [
        networks_section(),
        _initialization(figures, verdicts),
        readings_section(fresh),
        safeguard_section(fresh, judged),
        _acceleration(figures, verdicts),
        _real(figures, verdicts),
        carried_section(figures),
        optimum_section(figures, verdicts),
        _medians(figures),
        _cost(figures),
    ]
    head = [
        "# Results",
        "",
        *claims_section(figures),
        "",
        *_origin(manifest),
        *_tally(verdicts),
        "",
    ]
    made = manifest.get("figures", {})
    withheld = {n: made[n]["withheld"] for n in made if "withheld" in made[n]}  # and why
    pictures = {n: withheld.get(n, f"![{n}]({n}.png)") for n in names if n in figures}
    drawn = [line for picture in pictures.values() for line in (picture, "")]
    body = [line for section in sections for line in (*section, "")]
    return "\n".join([*head, *body, "## Figures", "", *drawn]).rstrip() + "\n"


def _origin(manifest: dict[str, Any]) -> list[str]:
    made = manifest.get("figures", {})
    if not made:
        return []
    entries = list(made.values())
    machines = sorted({f"{e['machine']['cpu']}, {e['machine']['cores']} cores" for e in entries})
    versions = sorted(
        {f"factormer {e['factormer']} ({e['commit'] or 'no commit'})" for e in entries}
    )
    seconds = sum(e["seconds"] for e in entries)
    notes = sorted({e["note"] for e in entries if "note" in e})
    return [
        f"Written by `factormer reproduce`, {'; '.join(versions)}, in {seconds:.0f} s on "
        f"{'; '.join(machines)}; float64, rank 10, every run from NNDSVD. Iteration 0 is the "
        "start, which for a learned initialization is the network's output. The rest is in "
        "`manifest.json`.",
        "",
        *(line for note in notes for line in (note, "")),
    ]


def _tally(verdicts: list[Verdict]) -> list[str]:
    met = [v for v in verdicts if v.is_met]
    text = f"Of {len(verdicts)} verdicts below, {len(met)} are met"
    if idle := sum(v.is_idle for v in verdicts):
        text += (
            f". {idle} of the others belong to runs whose safeguard dropped every proposal of the "
            "network: those are AO-ADMM's own, which meets no claim about a network"
        )
    return [text + "."]


def _initialization(figures: Figures, verdicts: list[Verdict]) -> list[str]:
    """Claim 1: the learned initialization."""
    lines = [
        "## Learned initialization",
        "",
        "The paper: it immediately produces a fit that AO-ADMM takes 20 iterations to match. "
        'Median RMSE. "Worth" is the iteration at which AO-ADMM is as good.',
        "",
    ]
    rows = []
    for figure, name in _present(SETS, figures, lines):
        for key in INIT_NETWORKS:
            claim = init_claim(figures[figure], key)
            alone, one_more = claim.verdicts
            verdicts += [alone, one_more]
            errors = (claim.nndsvd, claim.matched, claim.alone, claim.one_more)
            worths = (_worth(claim.worth_alone), _worth(claim.worth_one_more))
            nndsvd, matched, first, second = map(number, errors)
            rows.append((name, f"`{key}`", nndsvd, matched, first, alone, worths[0]))
            rows[-1] += (second, one_more, worths[1])
    heads = [
        "set",
        "network",
        "NNDSVD",
        "AO-ADMM at 20",
        "network alone",
        "≤ AO-ADMM at 20",
        "worth",
    ]
    return lines + table([*heads, "network + 1 iteration", "≤ AO-ADMM at 20", "worth"], rows)


def _worth(iteration: int | None) -> str:
    return "more than the run" if iteration is None else str(iteration)


def _acceleration(figures: Figures, verdicts: list[Verdict]) -> list[str]:
    """Claim 2: the learned acceleration."""
    lines = [
        "## Learned acceleration",
        "",
        "The paper: five accelerated iterations leave the error below AO-ADMM's. Ratios to AO-ADMM "
        "on the same matrix: the largest median of iterations 1 to 50, and the largest third "
        "quartile of iterations 5 to 20.",
        "",
    ]
    rows = []
    for figure, name in _present(SETS, figures, lines):
        for key, (network, safeguard) in ACCELERATIONS.items():
            claim = accel_claim(figures[figure], key)
            verdicts += claim.verdicts
            kept = _share(figures[figure]["contestants"][key]["kept"])
            median, third = number(claim.median), number(claim.third_quartile)
            words = (name, f"`{network}`", safeguard)
            rows.append((*words, median, claim.verdicts[0], third, claim.verdicts[1], kept))
    heads = [
        "set",
        "network",
        "safeguard",
        "median",
        "< 1",
        "third quartile",
        "< 1",
        "proposals kept",
    ]
    return lines + table(heads, rows)


def _real(figures: Figures, verdicts: list[Verdict]) -> list[str]:
    """Claim 3: real data, with the fair baseline and the paper's."""
    lines = [
        "## Real data",
        "",
        "The paper: the accelerated methods seem to result in a better local optimum than AO-ADMM, "
        "that is, with ρ = 1. RMSE on V of mean 1. The fair baseline is ρ = tr/r (Huang et al., "
        "2016), which is free of the scale of V.",
        "",
    ]
    for figure, title in _present(REAL, figures, lines):
        numbers, rows = figures[figure], []
        for key, row in numbers["contestants"].items():
            judged = key not in UNJUDGED
            verdict = real_claim(numbers, key) if judged else "" if key == BASELINE else "–"
            if isinstance(verdict, Verdict):
                verdicts.append(verdict)
            fair = "" if key == TRACE else "yes" if real_claim(numbers, key, TRACE).is_met else "no"
            best, at = lowest(row)
            cells = (row["label"], number(last(row), 6), f"{number(best)} at {at}", verdict, fair)
            rows.append((*cells, _share(row["kept"]), *_seconds(row)))
        heads = ["contestant", "RMSE at the last iteration", "lowest", "≤ ρ = 1", "≤ ρ = tr/r"]
        heads += ["proposals kept", "networks, s", "iteration, s", "networks, in iterations"]
        lines += [f"### {title}", "", *table(heads, rows), "", *_standing(numbers), ""]
    return lines[:-1]


def _standing(numbers: dict[str, Any]) -> list[str]:
    """Say how ρ = 1 behaves and where the networks stand against ρ = tr/r."""
    rows = numbers["contestants"]
    plain, fair = last(rows[BASELINE]), last(rows[TRACE])
    best, at = lowest(rows[BASELINE])
    text = f"AO-ADMM with ρ = 1 ends at {number(plain)}"
    if plain > 1.005 * best:
        text += f" after {number(best)} at iteration {at}: it does not converge here"
    key = min((k for k in rows if k not in UNJUDGED), key=lambda k: last(rows[k]))
    ours = last(rows[key])
    text += (
        f'. The best learned run around it is "{rows[key]["label"]}" with {number(ours)}, which '
        f"is {_compared(ours, fair)} the {number(fair)} that ρ = tr/r reaches without a network."
    )
    for key in AROUND_TRACE:
        if key in rows:
            ours = last(rows[key])
            text += (
                f' With "{rows[key]["label"]}": {number(ours)}, {_compared(ours, fair)} the same '
                "from NNDSVD."
            )
    return [text]


def _compared(ours: float, rival: float) -> str:
    """Name the size of the difference, which may be only a per mille."""
    change = ours / rival - 1
    word = "below" if change < 0 else "above"
    return "equal to" if change == 0 else f"{abs(change):.1%} {word}"


def _medians(figures: Figures) -> list[str]:
    """All contestants on the validation sets."""
    lines = ["## Median RMSE on the validation sets, by iteration", ""]
    rows, iterations = [], (0, 1, 5, 20, 50, 100)
    for figure, name in _present(SETS, figures, lines):
        for row in figures[figure]["contestants"].values():
            medians = row["rmse"]["median"]
            shown = (number(medians[t]) if t < len(medians) else "–" for t in iterations)
            rows.append((name, row["label"], *shown))
    return lines + table(["set", "contestant", *map(str, iterations)], rows)


def _cost(figures: Figures) -> list[str]:
    """Tell the cost of the networks; the paper counts iterations and never seconds."""
    lines = [
        "## Seconds",
        "",
        "Of all matrices of a set together. The paper counts iterations; a network costs many.",
        "",
    ]
    rows = []
    for figure, name in _present(SETS, figures, lines):
        for row in figures[figure]["contestants"].values():
            rows.append((name, row["label"], *_seconds(row)))
    heads = ["set", "contestant", "networks, s", "iteration, s", "networks, in iterations"]
    return lines + table(heads, rows)


def _seconds(row: dict[str, Any]) -> tuple[str, str, str]:
    network, iteration = row["seconds"]["network"], row["seconds"]["iteration"]
    if not network:
        return "–", f"{iteration:.2g}", "–"
    return f"{network:.3g}", f"{iteration:.2g}", f"{network / iteration:.0f}"


def _present(wanted: dict[str, str], figures: Figures, lines: list[str]) -> list[tuple[str, str]]:
    """The figures that were made, and which were not."""
    for figure in wanted:
        if figure not in figures:
            lines += [f"Not made yet: `factormer reproduce {figure}`.", ""]
    return [(figure, title) for figure, title in wanted.items() if figure in figures]


def _share(kept: float | None) -> str:
    return "–" if kept is None else f"{kept:.0%}"


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))
