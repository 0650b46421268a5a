"""Kullback–Leibler beside scikit-learn's multiplicative updates: seconds to 1 % of the best.

Each contestant is called for a growing number of iterations, from nothing, its start included, in
turns with the others, until a call outlasts the budget. The divergence is computed here, in
float64; the best of a matrix is the least that anyone reached. the real
matrices are in the folder that --data or FACTORMER_DATA names. On a machine with other work the
figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

import factormer
from factormer_lab.bench.cases import exponential, find
from factormer_lab.bench.environment import environment

CASES = (
    "reuters21578:20", "brca_sbs96:8", "brca_resampled:8", "audio_piano_spectrogram:15",
    "audio_piano_spectrogram:25", "spectrogram:25",
)  # fmt: skip
GRID = (3, 5, 8, 12, 20, 30, 50, 80, 120, 200, 300, 500, 800, 1200, 2000)
TARGETS = {"10 %": 1.1, "1 %": 1.01, "0.1 %": 1.001}


def ours(**options: Any) -> Callable[[Any, int, int], tuple[Any, Any]]:
    """Factormer with Kullback–Leibler."""

    def run(V: Any, r: int, k: int) -> tuple[Any, Any]:
        x = factormer.factorize(V, r, loss="kullback-leibler", max_iter=k, tol=0, **options)
        return x.W, x.H

    return run


def theirs(init: str) -> Callable[[Any, int, int], tuple[Any, Any]]:
    """scikit-learn's multiplicative updates."""
    from sklearn.decomposition import NMF

    def run(V: Any, r: Any, k: int) -> tuple[Any, Any]:
        options: dict[str, Any] = {"beta_loss": "kullback-leibler", "random_state": 0}
        model = NMF(r, init=init, solver="mu", max_iter=k, tol=0, **options)
        return model.fit_transform(V), model.components_.T

    return run


CONTESTANTS = {
    "factormer": ours(),
    "factormer mu-extrapolated": ours(solver="mu-extrapolated"),
    "scikit-learn mu nndsvda": theirs("nndsvda"),
    "scikit-learn mu random": theirs("random"),
}


def divergence(V: Any, W: Any, H: Any) -> float:
    """Σ v log(v/y) − v + y in float64."""
    W, H = np.asarray(W, np.float64), np.asarray(H, np.float64)
    total = float(W.sum(0) @ H.sum(0))
    if not scipy.sparse.issparse(V):
        V = scipy.sparse.csr_matrix(V)
    coo = V.tocoo()
    for a in range(0, coo.nnz, 100_000):
        at = slice(a, a + 100_000)
        v = coo.data[at]
        y = np.einsum("ic,ic->i", W[coo.row[at]], H[coo.col[at]])
        keep = v > 0
        y = np.maximum(y, np.finfo(float).tiny)[keep]
        total += float((v[keep] * np.log(v[keep] / y) - v[keep]).sum())
    return total


def race(V: Any, r: int, budget: float) -> dict[str, list[tuple[int, float, float]]]:
    """(iterations, seconds, divergence) of each contestant."""
    curves: dict[str, list[tuple[int, float, float]]] = {name: [] for name in CONTESTANTS}
    active = list(CONTESTANTS)
    for k in GRID:
        for name in list(active):
            times: list[float] = []
            while True:
                tick = time.perf_counter()
                W, H = CONTESTANTS[name](V, r, k)
                times.append(time.perf_counter() - tick)
                if len(times) == 3 or sum(times) > 0.3:
                    break
            curves[name].append((k, min(times), divergence(V, W, H)))
            if times[0] > budget:
                active.remove(name)
    return curves


def table(
    case: str, V: Any, r: int, curves: dict[str, list[tuple[int, float, float]]]
) -> tuple[str, dict]:
    """One case in markdown, and its numbers."""
    best = min(d for curve in curves.values() for _, _, d in curve)
    lines = [
        f"## {case}: {V.shape[0]}×{V.shape[1]}, rank {r}; least divergence {best:.6g}",
        "",
        "| | " + " | ".join(f"s to {t} | iterations" for t in TARGETS) + " | final excess |",
        "|---|" + "--:|" * (2 * len(TARGETS) + 1),
    ]
    numbers: dict[str, Any] = {"case": case, "best": best, "contestants": {}}
    for name, curve in curves.items():
        cells, one = "", {}
        for label, by in TARGETS.items():
            hit = min((p for p in curve if p[2] <= by * best), key=lambda p: p[1], default=None)
            one[label] = hit and {"seconds": hit[1], "iterations": hit[0]}
            cells += f" {hit[1]:.3g} | {hit[0]} |" if hit else " – | – |"
        excess = min(d for _, _, d in curve) / best - 1
        lines.append(f"| {name} |{cells} {100 * excess:.2f} % |")
        numbers["contestants"][name] = {"to": one, "curve": curve}
    return "\n".join(lines), numbers


def main() -> None:
    """Race, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", nargs="+", metavar="NAME[:RANK]", default=list(CASES))
    parser.add_argument("--data", type=Path, help="folder of the matrices; else FACTORMER_DATA")
    parser.add_argument("--seconds", type=float, default=10.0, help="a longer call is the last")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="folder")
    options = parser.parse_args()
    if options.data:
        os.environ["FACTORMER_DATA"] = str(options.data)
    warnings.simplefilter("ignore")
    warm = exponential(60, 50, 4, seed=0)
    for run in CONTESTANTS.values():  # import and compile; the second kind in both precisions
        run(scipy.sparse.csr_matrix(warm * (warm > 1)), 4, 8)
        run(warm, 4, 8)
    large = exponential(1000, 500, 8, seed=0)
    for rank in (8, 16):  # rows side by side, and by products
        CONTESTANTS["factormer"](large, rank, 3)
    texts, rows = [], []
    for case in find(options.cases):
        V = case.load()
        text, numbers = table(case.name, V, case.rank, race(V, case.rank, options.seconds))
        print(f"\n{text}", flush=True)
        texts.append(text)
        rows.append(numbers)
    info = environment(["numpy", "scikit-learn", "numba", "torch"])
    options.out.mkdir(parents=True, exist_ok=True)
    texts += ["## Environment", "\n".join(f"- {key}: {value}" for key, value in info.items())]
    head = "# Kullback–Leibler, seconds to the best divergence anyone reached"
    (options.out / "kl.md").write_text("\n\n".join([head, *texts]) + "\n", encoding="utf-8")
    text = json.dumps({"cases": rows, "environment": info}, indent=1)
    (options.out / "kl.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
