"""Measure the one answer of a run against its rules: make bench NAME=rank-answer ARGS="OUT".

The first N problems of `small` (cases.py) are asked as `factormer fit --rank select --holdout 0.1
--repeats 20` asks them: the network, errors of hidden entries, and stability on new draws of the
data, at ranks 1–16. What they say is added to OUT/evidence.jsonl as it comes, and what is there is
not run again; then `advised` reconciles it, as the report does.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import factormer
from factormer.app.runs.advice import advised, rules_of
from factormer.app.runs.folder import RankResult
from factormer.app.runs.select import described
from factormer_lab.bench.rank import cases

HOLDOUT, FOLDS, REPEATS = 0.1, 10, 20


def evidence(case: cases.Case, loss: str) -> dict[str, Any]:
    """What each rule sees of a problem."""
    begun, ranks = time.perf_counter(), list(case.ranks)
    choice = factormer.select_rank(case.V, ranks, loss=loss)
    hidden = factormer.cross_validate(
        case.V, ranks, loss=loss, holdout=HOLDOUT, n_folds=FOLDS, max_iter=200, tol=1e-4
    )
    resample = "poisson" if loss == "kullback-leibler" else "bootstrap"
    stability = [
        factormer.consensus(
            case.V, rank, n_runs=REPEATS, loss=loss, resample=resample
        ).stability.tolist()
        for rank in ranks
    ]
    told = described(choice)
    del told["curves"]
    return {
        "planted": case.rank,
        "kind": case.kind,
        "loss": loss,
        "seconds": round(time.perf_counter() - begun, 2),
        "choice": told,
        "held_out": [[float(f"{error:.6g}") for error in folds] for folds in hidden.errors],
        "rounding": hidden.resolution,
        "stability": [[round(number, 4) for number in row] for row in stability],
    }


def collected(path: Path, count: int) -> list[dict[str, Any]]:
    """The evidence of the first problems; that of an earlier run is kept."""
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for number, case in enumerate(cases.small()):
        if len(done) >= count:
            break
        if number < len(done):
            continue
        counted = case.kind.startswith(("poisson", "overdispersed")) and number % 2 == 0
        done.append(evidence(case, "kullback-leibler" if counted else "frobenius"))
        with path.open("a") as file:
            file.write(json.dumps(done[-1]) + "\n")
    return done[:count]


def answers(found: dict[str, Any]) -> dict[str, int]:
    """The rank that each rule takes, and the one of the report."""
    options = {"loss": found["loss"], "holdout": HOLDOUT, "repeats": REPEATS, "resample": "poisson"}
    results = [
        RankResult(
            rank=rank,
            status="CONVERGED",
            message="",
            iterations=0,
            seconds=0.0,
            objective=float("nan"),
            rmse=float("nan"),
            relative_error=float("nan"),
            explained=float("nan"),
            svd_rmse=None,
            shares=[1 / rank] * rank,
            held_out=folds,
            held_out_rounding=found["rounding"],
            stability=stability,
        )
        for rank, (folds, stability) in enumerate(
            zip(found["held_out"], found["stability"], strict=True), start=1
        )
    ]
    answer = advised(results, options, found["choice"])
    assert answer is not None
    said = {rule.by: rule.rank for rule in rules_of(results, options, found["choice"])}
    without = advised(results, options)  # as without --rank select
    assert without is not None
    return said | {"the answer": answer.rank, "the answer without a network": without.rank}


def main() -> None:
    """Print how often each is exact, and within one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=100)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    found = collected(asked.out / "evidence.jsonl", asked.count)
    all_answers = [answers(one) for one in found]
    for name in all_answers[0]:
        pairs = [(one[name], e["planted"]) for one, e in zip(all_answers, found, strict=True)]
        errors = np.array([rank - planted for rank, planted in pairs])
        exact, near = (errors == 0).mean(), (np.abs(errors) <= 1).mean()
        print(f"{name:30} {len(errors):4d}  exact {exact:6.1%}  within one {near:6.1%}")


if __name__ == "__main__":
    main()
