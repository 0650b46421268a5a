"""Planted ranks: how often `select_rank` and the classical rules find them.

    make bench NAME=rank ARGS="OUT [GROUP…] [--cross-validate N] [--model FILE]"

Groups are those of cases.py (small, wide, ladder, gaps, large, overlapping) and swimmer; all by
default. Answers are added to OUT/GROUP.jsonl as they come; what is there is not run again. The
first N problems of `small` are also cross-validated. Tables are printed at the end.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import factormer
from factormer_lab.bench.rank import cases


def answer(case: cases.Case, loss: str, **options: Any) -> dict[str, Any]:
    """The ranks that are chosen for a problem, by whom, and how long it took."""
    begun = time.perf_counter()
    choice = factormer.select_rank(case.V, case.ranks, loss=loss, **options)
    return {
        "planted": case.rank,
        "kind": case.kind,
        "shape": list(case.V.shape),
        "loss": loss,
        "seconds": round(time.perf_counter() - begun, 3),
        "rank": choice.rank,
        "clear": choice.clear,
        "probability": round(choice.probabilities[choice.rank], 4),
        "probabilities": {rank: round(p, 4) for rank, p in choice.probabilities.items()},
        "rules": {name: rule.rank for name, rule in choice.criteria.items()},
    }


def run(group: str, out: Path, n_validated: int, model: str) -> list[dict[str, Any]]:
    """All answers of a group; those of an earlier run are kept."""
    path = out / f"{group}.jsonl"
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    problems = iter([cases.swimmer()]) if group == "swimmer" else cases.GROUPS[group]()
    for number, case in enumerate(problems):
        if number < len(done):
            continue
        # Counts are fitted as counts in every other problem, as their users do.
        counted = case.kind.startswith(("poisson", "overdispersed")) and number % 2 == 0
        loss = "kullback-leibler" if counted else "frobenius"
        validated = group == "small" and number < n_validated
        done.append(answer(case, loss, cross_validate=validated, model=model))
        with path.open("a") as file:
            file.write(json.dumps(done[-1]) + "\n")
    return done


def rates(answers: list[dict[str, Any]]) -> dict[str, tuple[int, float, float]]:
    """For the network and each rule: problems, and the shares that are exact and within one."""
    found: dict[str, list[int]] = {"network": [a["rank"] - a["planted"] for a in answers]}
    for a in answers:
        for name, rank in a["rules"].items():
            found.setdefault(name, []).append(rank - a["planted"])
    return {
        name: (len(e), float(np.mean(np.equal(e, 0))), float(np.mean(np.abs(e) <= 1)))
        for name, e in found.items()
    }


def reliability(answers: list[dict[str, Any]]) -> list[tuple[float, float, int]]:
    """Mean probability, share that is exact, and number, for tenths of the probability."""
    p = np.array([a["probability"] for a in answers])
    exact = np.array([a["rank"] == a["planted"] for a in answers])
    bins = np.minimum((10 * p).astype(int), 9)
    return [
        (float(p[bins == b].mean()), float(exact[bins == b].mean()), int((bins == b).sum()))
        for b in range(10)
        if (bins == b).any()
    ]


def show(group: str, answers: list[dict[str, Any]]) -> None:
    """Print the tables of a group."""
    print(f"\n{group}: {len(answers)} problems")
    for name, (count, exact, near) in sorted(rates(answers).items(), key=lambda item: -item[1][1]):
        print(f"  {name:26} {count:4d}  exact {exact:6.1%}  within one {near:6.1%}")
    validated = [a for a in answers if "cross-validation" in a["rules"]]
    if validated:
        found = rates(validated)
        pairs = [f"{name} {found[name][1]:.1%}" for name in ("network", "cross-validation")]
        print(f"  the {len(validated)} that were cross-validated, exact: {', '.join(pairs)}")
    clear = [a for a in answers if a["clear"]]
    if clear:
        share = np.mean([a["rank"] == a["planted"] for a in clear])
        print(f"  clear {len(clear) / len(answers):.1%}, of which exact {share:.1%}")
    print(f"  seconds: median {np.median([a['seconds'] for a in answers]):.2f}")
    for kind in sorted({k for a in answers for k in a["kind"].split()}):
        some = [a for a in answers if kind in a["kind"].split()]
        count, exact, near = rates(some)["network"]
        print(f"    {kind:24} {count:4d}  exact {exact:6.1%}  within one {near:6.1%}")
    for p, exact, count in reliability(answers):
        print(f"    said {p:5.1%}, was exact {exact:6.1%} of {count}")


def main() -> None:
    """Run groups and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("groups", nargs="*")
    parser.add_argument("--cross-validate", type=int, default=0)
    parser.add_argument("--model", default="rank")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for group in options.groups or [*cases.GROUPS, "swimmer"]:
        show(group, run(group, options.out, options.cross_validate, options.model))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
