"""Call the bindings with whatever comes to mind: `python -m tests.core.fuzz --calls 1000000`.

A call either returns factors that are nonnegative and finite or refuses in a sentence; and the same
call on another number of threads returns the same bits. A failure prints its seed, from which
`--seed` repeats it.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
import scipy.sparse as sp

from tests.core.lanes import core, given

ODD = [0.0, -0.0, -1.0, np.nan, np.inf, -np.inf, 5e-324, 1e-170, 1e150, 1.7e308]


def matrix(rng: np.random.Generator) -> Any:
    """A small matrix of some kind, broken now and then."""
    m, n = (int(k) for k in rng.integers(0, 40, 2))
    V = rng.random((m, n)) * (rng.random((m, n)) < rng.random()) * 10.0 ** rng.integers(-3, 4)
    if V.size and rng.random() < 0.1:
        V[rng.integers(m), rng.integers(n)] = rng.choice(ODD)
    kind = rng.integers(8)
    if kind == 0:
        widths = rng.integers(0, 9, 2)
        return (
            "low-rank",
            *(rng.random((size, p)) for size, p in zip((m, n), widths, strict=True)),
        )
    if kind == 1:
        p = int(rng.integers(0, 9))
        return ("low-rank", rng.standard_normal((m, p)), rng.random((n, p)))
    if kind in (2, 3):
        return sparse(rng, V)
    if kind == 4:
        return np.asfortranarray(V)
    if kind == 5:
        with np.errstate(all="ignore"):
            return V.astype(np.float32)
    if kind == 6 and rng.random() < 0.3:
        odd = [V[::2], V[:, ::-1], V.T[None], V > 0, V.astype(">f8"), None, "V", [[1.0]]]
        return odd[rng.integers(len(odd))]
    return V


def sparse(rng: np.random.Generator, V: np.ndarray) -> Any:
    """A sparse matrix by rows and by columns, one of whose parts may be broken."""
    parts = list(given(sp.csr_matrix(V)))
    if rng.random() < 0.4:
        place = int(rng.integers(1, 9))
        if place < 3:
            parts[place] = rng.choice([int(rng.integers(-2, 50)), 2**31, 2**40])
        elif parts[place].size:
            broken = parts[place].copy()
            broken[rng.integers(len(broken))] = rng.integers(-3, 60)
            is_short = rng.random() < 0.3
            parts[place] = broken[: rng.integers(len(broken) + 1)] if is_short else broken
        if rng.random() < 0.1:
            parts[place] = (None, "9", 3.5)[rng.integers(3)]
    return tuple(parts)


def weighted(rng: np.random.Generator, V: Any) -> Any:
    """A matrix with weights, which are broken now and then, or as it is."""
    if isinstance(V, np.ndarray) and V.ndim == 2 and rng.random() < 0.7:
        omega = rng.random(V.shape) * (rng.random(V.shape) < rng.random())
        if omega.size and rng.random() < 0.1:
            omega[rng.integers(len(omega)), rng.integers(V.shape[1])] = rng.choice(ODD)
        with np.errstate(all="ignore"):
            narrow = omega.astype(np.float32)
        odd = [omega, omega.T, narrow, np.asfortranarray(omega), omega[:, ::-1]]
        return ("weighted", V, odd[rng.choice(5, p=[0.6, 0.1, 0.1, 0.1, 0.1])])
    if isinstance(V, tuple) and V[0] == "sparse" and rng.random() < 0.5:
        sizes = [len(part) if isinstance(part, np.ndarray) else 3 for part in (V[5], V[8])]
        return (*V, *(rng.random(max(size - (rng.random() < 0.05), 0)) for size in sizes))
    return V


def loss_of(rng: np.random.Generator) -> tuple[Any, ...]:
    """A β-divergence with the rules of its steps, odd now and then."""
    beta = rng.choice([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, -1.0, np.nan, 1e3], p=[0.12] * 8 + [0.04])
    numbers = (int(rng.integers(0, 9)), float(rng.choice([1.0, 1.1, 0.5], p=[0.5, 0.48, 0.02])))
    counts = (int(rng.integers(1, 4)), *(int(k) for k in rng.integers(0, 5, 2)))
    return (float(beta), *numbers, *counts, bool(rng.integers(2)))


def sketched(rng: np.random.Generator) -> None:
    """One sketch, the same on any number of threads, or a sentence."""
    V, p, seed = matrix(rng), int(rng.integers(-1, 12)), int(rng.integers(2**63))
    precision = str(rng.choice(["float64", "mixed", "float32"]))
    core.use_isa(str(rng.choice(core.isas())))
    found = []
    for threads in (1, int(rng.integers(2, 5))):
        try:
            U, Z, lost = core.sketch(V, p, seed=seed, precision=precision, threads=threads)
            found.append((U.tobytes(), Z.tobytes(), lost))
            assert np.isfinite(U).all()
            assert np.isfinite(Z).all()
            assert lost >= 0
        except (ValueError, MemoryError) as refused:
            found.append(str(refused))
            assert found[-1]
    assert found[0] == found[1]


def ended_early(rng: np.random.Generator) -> None:
    """One call that has little time or none: its factors are nonnegative and finite."""
    m, n, r = (int(k) for k in rng.integers(1, 60, 3))
    V, starts = rng.random((m, n)), [str(rng.choice(["random", "rotated"])) for _ in range(3)]
    core.use_isa(str(rng.choice(core.isas())))
    W, H, *_ = core.run(
        [V, sp_given(V)],
        [0, 1, 0],
        [r] * 3,
        [1, 2, 3],
        starts,
        max_iter=10**6,
        tol=0.0,
        seconds=float(rng.choice([0.0, 1e-6, 1e-4, 1e-3])),
        finish=str(rng.choice(["none", "sweeps", "exact"])),
        precision=str(rng.choice(["float64", "mixed", "float32"])),
        threads=int(rng.integers(1, 4)),
    )
    for factors in (W, H):
        assert np.isfinite(factors).all()
        assert (factors >= 0).all()


def sp_given(V: np.ndarray) -> Any:
    """The larger entries of a matrix, as the core takes sparse ones."""
    return given(sp.csr_matrix(np.where(V > 0.5, V, 0)))


def call(rng: np.random.Generator) -> None:
    """One call: a sketch, a run that is cut short, or up to five lanes."""
    kind = rng.random()
    if kind < 0.1:
        return sketched(rng)
    if kind < 0.13:
        return ended_early(rng)
    return lanes(rng)


def lanes(rng: np.random.Generator) -> None:
    """One call of up to five lanes."""
    matrices = [matrix(rng) for _ in range(rng.integers(1, 4))]
    count = int(rng.integers(0, 6))
    index = [int(k) for k in rng.integers(0, len(matrices), count)]
    ranks = [int(r) for r in rng.integers(1, 12, count)]
    if count and rng.random() < 0.05:
        (index if rng.random() < 0.5 else ranks)[0] = int(rng.integers(-2, 3))
    rules: dict[str, Any] = {
        "max_iter": int(rng.integers(0, 40)),
        "tol": float(rng.choice([0, 1e-4, 1e-2, -1, np.nan], p=[0.3, 0.4, 0.28, 0.01, 0.01])),
        "precision": str(rng.choice(["float64", "mixed", "float32"])),
        "finish": str(rng.choice(["none", "sweeps", "exact"])),
        "scale": str(rng.choice(["none", "balanced", "sum"])),
        "order": bool(rng.integers(2)),
    }
    if rng.random() < 0.3:
        rules["l1"] = tuple(rng.random(2) * rng.integers(0, 2, 2))
        rules["l2"] = tuple(rng.random(2) * rng.integers(0, 2, 2))
    if rng.random() < 0.2:
        shapes = [
            getattr(matrices[k], "shape", (7, 7)) if 0 <= k < len(matrices) else (7, 7)
            for k in index
        ]
        rules["starts"] = [
            (rng.random((s[0], max(r, 0))), rng.random((s[-1], max(r, 0))))
            if rng.random() < 0.7
            else rng.choice(["random", "rotated"]).item()
            for s, r in zip(shapes, ranks, strict=True)
        ]
        if rng.random() < 0.3:
            rules["fixed"] = [
                None
                if isinstance(start, str) and rng.random() < 0.95
                else [np.flatnonzero(rng.random(max(r, 0)) < 0.3).tolist() for _ in range(2)]
                for start, r in zip(rules["starts"], ranks, strict=True)
            ]
    elif rng.random() < 0.3:
        rules["starts"] = ["rotated"] * count
    if rng.random() < 0.02:
        rules["pull"] = 0.2
    if rng.random() < 0.4:
        rules["loss"] = loss_of(rng)
        matrices = [weighted(rng, V) for V in matrices]
    if rng.random() < 0.1:
        rules["callback"] = lambda *row: False
    core.use_isa(str(rng.choice(core.isas())))
    found = []
    for threads in (1, int(rng.integers(2, 5))):
        try:
            found.append(
                core.run(matrices, index, ranks, list(range(count)), threads=threads, **rules)
            )
        except (ValueError, MemoryError) as refused:
            found.append(str(refused))
    if isinstance(found[0], str):
        assert found[0] == found[1]
        assert found[0]
        return
    (W, H, _, ends), (W_again, H_again, _, ends_again) = found
    assert W.tobytes() == W_again.tobytes()
    assert H.tobytes() == H_again.tobytes()
    for one, again in zip(ends, ends_again, strict=True):
        assert one[:3] == again[:3] or one[0] != one[0]  # error, iterations and status
    if all(core.STATUSES[status] != "NONFINITE" for _, _, status, _ in ends):
        for factors in (W, H):
            assert np.isfinite(factors).all()
            assert (factors >= 0).all()


def main() -> None:
    """Make calls until there are enough."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    for seed in range(asked.seed, asked.seed + asked.calls):
        try:
            call(np.random.default_rng(seed))
        except BaseException:
            sys.stderr.write(f"seed {seed}\n")
            raise
    sys.stdout.write(f"{asked.calls} calls\n")


if __name__ == "__main__":
    main()
