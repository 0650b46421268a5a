"""The worth of the any-rank network and of iterations ahead, and whether they can be trusted.

    make bench NAME=learned ARGS="gain [CASE …]      # readings of V and seconds, from one start"
    make bench NAME=learned ARGS="safety             # ranks 2–100, sizes 10×10 to 20 000×5 000"
    make bench NAME=learned ARGS="paper              # the paper's two validation sets, rank 10"
    make bench NAME=learned ARGS="optima [CASE …]    # one default run beside ten of scikit-learn"

Cases as in cases.py, "name" or "name:rank"; FACTORMER_DATA names a folder with more. With --out,
what was found goes to learned-PART.json and learned-PART.md there.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import sklearn.decomposition
import torch
from sklearn.exceptions import ConvergenceWarning

import factormer
from factormer.data import Dense
from factormer.functions import starting_point
from factormer_lab.bench.cases import Case, exponential, find
from factormer_lab.bench.environment import environment
from factormer_lab.bench.errors import EXACT, rmse
from factormer_lab.train.synthetic import VALIDATION, validation_set

ENGINES: dict[str, dict[str, Any]] = {
    "her": {"solver": "her", "accelerator": None},
    "her + network": {"solver": "her", "accelerator": "any-rank"},
    "ahead": {"solver": "ahead", "accelerator": None},
    "ahead + network": {"solver": "ahead", "accelerator": "any-rank"},
}
TARGETS = (1.01, 1.001)
RANKS = (2, 5, 10, 20, 40, 64, 100)
SIZES = ((10, 10), (30, 25), (120, 90), (400, 300), (2000, 1000), (20_000, 5_000))
_HUGE = 10**7  # entries from which fewer ranks and iterations have to do


SAID: list[str] = []


def say(text: str) -> None:
    """Print at once, so that a long run shows where it is, and keep it for the page."""
    SAID.append(text)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def gain(cases: list[Case], n_iter: int) -> list[dict[str, Any]]:
    """Iterations, each two readings of V, and seconds to 1 % and 0.1 %, all from one start."""
    rows = []
    say(" " * 26 + "".join(f"{name + ', to 1 % and 0.1 %':>38s}" for name in ENGINES))
    for case in cases:
        V = case.load()
        if scipy.sparse.issparse(V):
            continue
        W, H = starting_point(V, case.rank, init="rotated")
        start = {"init": "custom", "W": W, "H": H, "tol": 0.0}
        traces = {}
        for name, options in ENGINES.items():
            factormer.factorize(V, case.rank, max_iter=3, **start, **options)
            result = factormer.factorize(V, case.rank, max_iter=n_iter, **start, **options)
            traces[name] = np.stack([result.trace.seconds, result.trace.rmse], axis=1)
        best = max(min(t[:, 1].min() for t in traces.values()), EXACT)
        row: dict[str, Any] = {"case": f"{case.name}:{case.rank}", "shape": V.shape}
        for name, trace in traces.items():
            reached = [np.flatnonzero(trace[:, 1] <= best * q) for q in TARGETS]
            row[name] = [
                (int(at[0]), float(trace[at[0], 0])) if len(at) else None for at in reached
            ]
        rows.append(row)
        say(f"{row['case']:26s}" + "".join(f"{_cell(row[name]):>38s}" for name in ENGINES))
    for name, other in [
        *((name, "her") for name in list(ENGINES)[1:]),
        ("ahead + network", "ahead"),
    ]:
        for k, label in enumerate(("1 %", "0.1 %")):
            both = [(row[other][k], row[name][k]) for row in rows if row[other][k] and row[name][k]]
            logs = np.log([(a[0] / max(b[0], 1), a[1] / b[1]) for a, b in both if a[0] > 5])
            iterations, seconds = np.exp(logs.mean(axis=0))
            say(
                f"{name} beside {other}, to {label}: {iterations:.2f} times fewer iterations, "
                f"{seconds:.2f} times less time ({len(logs)} cases of more than 5 iterations)"
            )
    return rows


def _cell(found: list[tuple[int, float] | None]) -> str:
    return "   ".join("not" if f is None else f"{f[0]} it, {f[1]:.3f} s" for f in found)


def safety(cases: list[Case], n_iter: int) -> list[dict[str, Any]]:
    """Whether factors are finite, errors fall with k, and none is above 1.01 of the plain one."""
    rows = []
    for m, n in SIZES:
        huge = m * n > _HUGE
        V = exponential(m, n, min(20, m), seed=7, noise=0.05)
        for rank in (r for r in RANKS if r <= min(m, n) and not (huge and r not in (2, 20, 100))):
            errors: dict[str, list[float]] = {"any-rank": [], "None": []}
            for k in (2, 4) if huge else (2, 5, 10, 20, 40):
                for name, accelerator in (("any-rank", "any-rank"), ("None", None)):
                    options: dict[str, Any] = {"accelerator": accelerator, "tol": 0.0}
                    result = factormer.factorize(V, rank, max_iter=k, **options)
                    errors[name].append(rmse(V, result.W, result.H))
            ours, plain = (np.array(errors[name]) for name in ("any-rank", "None"))
            row = {
                "shape": (m, n),
                "rank": rank,
                "finite": bool(np.isfinite(ours).all()),
                "falls": all(b <= a * (1 + 1e-9) + 1e-12 for a, b in pairwise(ours)),
                "worst": float(((ours + 1e-12) / (plain + 1e-12)).max()),
            }
            rows.append(row)
            say(
                f"{m}×{n}, rank {rank}: finite {row['finite']}, falls {row['falls']}, "
                f"at most {row['worst']:.4f} of the plain error"
            )
    good = [r["finite"] and r["falls"] and r["worst"] <= 1.01 for r in rows]
    say(f"{sum(good)} of {len(good)} keep to all three")
    return rows


def paper(cases: list[Case], n_iter: int) -> list[dict[str, Any]]:
    """Median RMSE after ten iterations, beside AO-ADMM from NNDSVD after ten times as many."""
    rows = []
    baseline = {"solver": "ao-admm", "accelerator": None, "init": "nndsvd"}
    engines = {"AO-ADMM from nndsvd": baseline}
    for init in ("nndsvd", "rotated"):
        engines |= {f"{name} from {init}": {**on, "init": init} for name, on in ENGINES.items()}
    for name in VALIDATION:
        stack = validation_set(name)
        ones = [stack.select(torch.tensor([i]), crop=True).problem.V for i in range(len(stack))]
        matrices = [V.entries[0] for V in ones if isinstance(V, Dense)]
        row: dict[str, Any] = {"set": name, "matrices": len(matrices)}
        for engine, options in engines.items():
            k = 10 * n_iter if options is baseline else n_iter
            results = [factormer.factorize(V, 10, max_iter=k, tol=0.0, **options) for V in matrices]
            row[engine] = float(np.median([float(result.rmse) for result in results]))
            say(f"{name}, {engine}, iteration {k}: {row[engine]:.5f}")
        rows.append(row)
    return rows


def optima(cases: list[Case], n_iter: int) -> list[dict[str, Any]]:
    """The error of one default run beside ten of scikit-learn's from chance, long as they take."""
    warnings.simplefilter("ignore", ConvergenceWarning)  # at the limit they are taken as they are
    rows = []
    for case in cases:
        V = case.load()
        model = factormer.NMF(case.rank, max_iter=n_iter)
        ours = rmse(V, model.fit_transform(V), model.components_.T)
        theirs = []
        for seed in range(10):
            other = sklearn.decomposition.NMF(
                case.rank,  # pyright: ignore[reportArgumentType]
                init="random",
                max_iter=n_iter,
                tol=1e-5,
                random_state=seed,
            )
            theirs.append(rmse(V, other.fit_transform(V), other.components_.T))
        median = float(np.median(theirs))
        rows.append({"case": f"{case.name}:{case.rank}", "ours": ours, "theirs": theirs})
        say(f"{case.name}:{case.rank:<6} {ours:.6g} beside a median of {median:.6g}")
    good = sum(row["ours"] <= max(np.median(row["theirs"]), EXACT) for row in rows)
    say(f"at most the median on {good} of {len(rows)} cases")
    return rows


PARTS = {
    "gain": (gain, 200),
    "safety": (safety, 40),
    "paper": (paper, 10),
    "optima": (optima, 1000),
}


def main() -> None:
    """Run one part, print it, and keep what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--n-iter", type=int, help="iterations at most")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    run, n_iter = PARTS[options.part]
    rows = run(find(options.cases or None), options.n_iter or n_iter)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        found = {"environment": environment(), "rows": rows}
        text = json.dumps(found, indent=1, default=str)
        stem = f"learned-{options.part}"
        (options.out / f"{stem}.json").write_text(text + "\n", encoding="utf-8")
        page = "\n".join(["```text", *SAID, "```", ""])
        (options.out / f"{stem}.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
