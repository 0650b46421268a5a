"""Count the planted ranks that show in the singular values of the data at all.

    python benchmarks/rank/limits.py [OUT]

For each problem of `small` and `wide`, the matrix without noise is scaled so that noise has the
variance 1 on average in every row and column. In the limit of large matrices, noise hides singular
values below (mn)^¼ there (Benaych-Georges and Nadakuditi, 2012); the strength of a problem is the
last of its planted ones over that. Parts that exclude each other are counted apart: their linear
rank is below their number, which only a nonnegative fit can tell. With OUT of run.py, also how many
of each strength were found. A few seconds.
"""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np

from factormer.train.rank.planted import SMALL, WIDE, Planted, planted
from factormer_lab.bench import cases

EDGES = (0.0, 1.0, 1.5, 2.0, 3.0, np.inf)
_BALANCING = 50  # iterations of Sinkhorn and Knopp


def strength(p: Planted) -> float:
    """The weakest planted singular value over the largest that noise hides."""
    if p.noise == "exact":
        return np.inf
    X = p.clean * (p.level if p.noise in ("poisson", "overdispersed") else 1.0)
    if p.noise == "gaussian":
        variance = np.full(X.shape, p.level**2)
    elif p.noise == "multiplicative":
        variance = (p.level * X) ** 2
    else:
        squares = (p.V - X) ** 2
        extra = (squares - X).mean() / (X**2).mean() if p.noise == "overdispersed" else 0.0
        variance = X + max(extra, 0.0) * X**2
    variance = np.maximum(variance, 1e-3 * variance.mean())
    (m, n), v = X.shape, np.ones(X.shape[1])
    u = np.ones(m)
    for _ in range(_BALANCING):
        u = n / (variance @ v)
        v = m / (variance.T @ u)
    values = np.linalg.svd(X * np.sqrt(u)[:, None] * np.sqrt(v), compute_uv=False)
    return float(values[p.rank - 1] / (m * n) ** 0.25)


def found(out: Path | None, group: str) -> list[bool]:
    """Which problems of a group the network answered exactly, as far as run.py went."""
    path = out / f"{group}.jsonl" if out else None
    if path is None or not path.exists():
        return []
    answers = [json.loads(line) for line in path.read_text().splitlines()]
    return [a["rank"] == a["planted"] for a in answers]


def show(group: str, exact: list[bool]) -> None:
    """Print how many problems there are of each strength, and how many were found."""
    family, count = (SMALL if group == "small" else WIDE), cases.COUNTS[group]
    problems = [planted(family, seed) for seed in range(count)]
    parts = np.array([p.factors == "parts" for p in problems])
    strengths = np.array([strength(p) for p in problems])
    rows = [("parts", parts)]
    for low, high in pairwise(EDGES):
        name = f"strength {low:g}–{high:g}" if high < np.inf else f"strength {low:g} and more"
        rows.append((name, ~parts & (strengths >= low) & (strengths < high)))
    rows[-1][1][np.isinf(strengths) & ~parts] = True
    print(f"\n{group}: {count} problems")
    for name, some in rows:
        line = f"  {name:22} {some.sum():4d}  {some.mean():6.1%}"
        known = np.array(exact)[some[: len(exact)]]
        print(line + (f"  exact {known.mean():6.1%} of {known.size}" if known.size else ""))


def main() -> None:
    """Print the tables."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    for group in ("small", "wide"):
        show(group, found(out, group))


if __name__ == "__main__":
    main()
