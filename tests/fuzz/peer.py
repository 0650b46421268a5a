"""The final errors beside those of scikit-learn's NMF, both at their defaults."""

from __future__ import annotations

import json
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.pool import Worker

BAR, SHARE = 1.05, 0.99  # how far above scikit-learn's an error may be, and how often it must not


def compare(seed: int) -> dict[str, Any]:
    """The error of each on a random matrix, and their ratio; both near an exact fit is a tie."""
    from sklearn import decomposition

    import factormer

    rng = np.random.default_rng(seed)
    m, n = (int(k) for k in rng.integers(5, 80, 2))
    rank = int(rng.integers(1, min(m, n, 20) + 1))
    kind = str(rng.choice(["random", "noisy", "counts", "sparse", "exact"]))
    k = int(rng.integers(1, rank + 5))
    V = rng.exponential(size=(m, k)) @ rng.exponential(size=(k, n))
    match kind:
        case "random":
            V = rng.random((m, n))
        case "noisy":
            V = np.maximum(V + 0.1 * V.mean() * rng.standard_normal((m, n)), 0)
        case "counts":
            V = rng.poisson(V).astype(float)
        case "sparse":
            V = V * (rng.random((m, n)) < 0.2)
    V[0, 0] += 0.01  # not all zeros
    errors = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peers: Any = (factormer.NMF, decomposition.NMF)
        for model in (kind(n_components=rank, random_state=0) for kind in peers):
            W = model.fit_transform(V)
            errors.append(float(np.linalg.norm(V - W @ model.components_) / np.linalg.norm(V)))
    ours, theirs = (max(error, 1e-3) for error in errors)  # scikit-learn's tolerance ends there
    told = {"seed": seed, "kind": kind, "shape": [m, n], "rank": rank}
    return {**told, "ours": errors[0], "theirs": errors[1], "ratio": ours / theirs}


def report(count: int, jobs: int, cap: float, out: Path) -> int:
    """Compare on many matrices; 0 where enough are within the bar."""

    def share(first: int) -> list[dict[str, Any]]:
        worker = Worker(compare, cap=cap)
        found = [worker.ask(seed) for seed in range(first, count, jobs)]
        worker.stop()
        return found

    with ThreadPoolExecutor(jobs) as threads:
        found = [one for part in threads.map(share, range(jobs)) for one in part]
    good = [one for one in found if "ratio" in one]
    ratios = np.array([one["ratio"] for one in good])
    within = float((ratios <= BAR).sum() / len(found))
    at = {f"{q:g} %": float(np.percentile(ratios, q)) for q in (1, 10, 50, 90, 95, 99, 99.9, 100)}
    lines = [f"{len(found)} matrices, {len(found) - len(good)} without an answer"]
    lines += [
        f"within {BAR}×: {within:.2%} (bar {SHARE:.0%})",
        f"better: {(ratios < 1).mean():.1%}",
    ]
    lines += [f"  {name:>7}  {value:.4f}" for name, value in at.items()]
    lines += [json.dumps(one) for one in sorted(good, key=lambda one: -one["ratio"])[:10]]
    out.mkdir(parents=True, exist_ok=True)
    (out / "sklearn.txt").write_text("\n".join(lines) + "\n")
    sys.stderr.write("\n".join(lines) + "\n")
    return int(within < SHARE)
