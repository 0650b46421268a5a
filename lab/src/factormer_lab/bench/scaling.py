"""How the time of an iteration and the memory of a factorization grow with the problem.

Each point is a process of its own, on one thread but where threads are the question. The time of an
iteration is what k more of them add to k; memory is the peak of the process less that of one that
has factorised next to nothing. Matrices are random, the solver is "her" from a random start.
`make bench NAME=scaling` runs it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from factormer_lab.bench.environment import environment

# Neither torch nor factormer: a process starts out with the peak of the one that started it.

ARRAYS = 20  # of the size of the factors, that a factorization may hold beside the matrix
_BLUE, _ORANGE, _GREEN = "#0072b2", "#d55e00", "#009e73"
_RC: Any = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
}


@dataclass(frozen=True)
class Point:
    """A problem to time: m×n of rank r, with nnz entries that are not zero, or dense."""

    m: int
    n: int
    r: int
    nnz: int | None = None
    threads: int = 1

    def matrix(self) -> Any:
        """Random data, made without a second array of its size."""
        rng = np.random.default_rng(0)
        if self.nnz is None:
            return rng.random((self.m, self.n))
        import scipy.sparse

        k = self.nnz // self.m  # in each row, one in each of k equal stretches
        columns = rng.integers(0, self.n // k, (self.m, k), dtype=np.int32)
        columns += (np.arange(k) * (self.n // k)).astype(np.int32)
        starts = np.arange(0, self.m * k + 1, k, dtype=np.int32)
        return scipy.sparse.csr_matrix(
            (rng.random(self.m * k), columns.ravel(), starts), (self.m, self.n)
        )


def sweeps(quick: bool) -> dict[str, list[Point]]:
    """The series of points, by the quantity that grows."""
    dense, sparse = Point(500, 500, 20), Point(20_000, 20_000, 20, nnz=100_000)
    square, wide = Point(1000, 1000, 5), Point(5000, 2000, 20)
    doublings = [2**i for i in range(2 if quick else 6)]
    cores = os.cpu_count() or 1
    return {
        "m": [replace(dense, m=500 * c) for c in doublings],
        "n": [replace(dense, n=500 * c) for c in doublings],
        "nnz": [replace(sparse, nnz=100_000 * c) for c in doublings],
        "r": [replace(square, r=5 * c) for c in doublings[:5]],
        "threads": [replace(wide, threads=t) for t in (1, 2, 4, 8, 16) if t == 1 or t <= cores],
    }


def peak_bytes() -> int:
    """The most memory that this process has held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)


def measure(point: Point, k: int, repeats: int) -> dict[str, float]:
    """Seconds of an iteration and peak memory, in this process."""
    import torch

    import factormer

    torch.set_num_threads(point.threads)

    def seconds(V: Any, r: int, n_iter: int) -> float:
        tick = time.perf_counter()
        factormer.factorize(V, r, solver="her", init="random", tol=0, max_iter=n_iter)
        return time.perf_counter() - tick

    tiny = replace(point, m=100, n=100, nnz=point.nnz and 1000).matrix()
    seconds(tiny, point.r, 2 * k)
    baseline = peak_bytes()
    V = point.matrix()
    times = [(seconds(V, point.r, k), seconds(V, point.r, 2 * k)) for _ in range(repeats)]
    once, twice = (min(column) for column in zip(*times, strict=True))
    return {"seconds": (twice - once) / k, "peak": peak_bytes(), "baseline": baseline}


def in_process(point: Point, k: int, repeats: int) -> dict[str, Any]:
    """Measure a point in a fresh process."""
    task = json.dumps([asdict(point), k, repeats])
    done = subprocess.run(
        [sys.executable, __file__, "--point", task], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{point} failed:\n{done.stderr}")
    return asdict(point) | json.loads(done.stdout)


def slope(rows: list[dict[str, Any]], by: str) -> float:
    """The exponent p of the fit seconds ∝ quantity^p."""
    x, y = (np.log([max(row[key], 1e-9) for row in rows]) for key in (by, "seconds"))
    return float(np.polyfit(x, y, 1)[0])


def line(rows: list[dict[str, Any]], by: str) -> tuple[float, float, float]:
    """Milliseconds a and b of the fit a + b·quantity, and the share of the variance it explains.

    Weighted so that each point's relative error counts alike.
    """
    x, y = (np.array([row[key] for row in rows], dtype=float) for key in (by, "seconds"))
    b, a = np.polyfit(x, y, 1, w=1 / np.maximum(y, 1e-9))
    left = np.sum((y - a - b * x) ** 2) / np.sum((y - y.mean()) ** 2)
    return 1e3 * a, 1e3 * b, float(1 - left)


def memory(row: dict[str, Any]) -> float:
    """Bytes that a point took beside those of a process that did next to nothing."""
    return row["peak"] - row["baseline"]


def factors(row: dict[str, Any]) -> int:
    """Bytes of W and H."""
    return 8 * (row["m"] + row["n"]) * row["r"]


def bound(row: dict[str, Any]) -> int:
    """Bytes that a sparse point may take: matrix, transpose and some arrays like the factors."""
    matrix = 12 * row["nnz"] + 4 * (row["m"] + 1)  # as it is given, with indices of 4 bytes
    return 2 * matrix + ARRAYS * factors(row)


def report(results: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Print the laws that the points follow."""
    findings: dict[str, Any] = {}
    for by in ("m", "n", "nnz", "r"):
        findings[by] = slope(results[by], by)
        a, b, explained = line(results[by], by)
        findings[f"{by}, linear"] = {"ms": a, "ms a unit": b, "R²": explained}
        print(
            f"time ∝ {by}^{findings[by]:.2f}; or {a:.2f} ms + {b:.2e} ms·{by}, R² {explained:.3f}"
        )
    alone = results["threads"][0]["seconds"]
    findings["speed_up"] = {row["threads"]: alone / row["seconds"] for row in results["threads"]}
    for threads, factor in findings["speed_up"].items():
        print(f"{threads} thread(s): {factor:.2f} times as fast as one")
    kept = all(memory(row) <= bound(row) for row in results["nnz"])
    findings["memory_kept"] = kept
    print(
        f"sparse memory: {'kept' if kept else 'NOT kept'} under the matrix, its transpose and "
        f"{ARRAYS} arrays of the size of the factors"
    )
    for row in results["nnz"]:
        taken, arrays = memory(row) / 1e6, ARRAYS - (bound(row) - memory(row)) / factors(row)
        limit = f"{bound(row) / 1e6:.1f} MB"
        print(f"  nnz {row['nnz']:>9,}: {taken:.1f} MB of {limit}, {arrays:.1f} such arrays")
    return findings


def _short(value: float) -> str:
    for unit, sign in ((1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{sign}"
    return f"{value:g}"


def draw(results: dict[str, list[dict[str, Any]]], findings: dict[str, Any], path: Path) -> None:
    """Six panels: the time against each quantity, the threads, and the memory of sparse data."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

    with matplotlib.rc_context(_RC):
        figure = Figure(figsize=(10.5, 6.0), layout="constrained")
        panels = figure.subplots(2, 3).ravel()
        fixed = {
            "m": "rows m (n = 500, r = 20)",
            "n": "columns n (m = 500, r = 20)",
            "nnz": "nonzeros (20,000×20,000, r = 20)",
            "r": "rank r (1000×1000)",
        }
        for ax, (by, label) in zip(panels, fixed.items(), strict=False):
            x = np.array([row[by] for row in results[by]], float)
            y = 1e3 * np.array([row["seconds"] for row in results[by]])
            ax.loglog(x, y, "o-", color=_BLUE)
            middle = math.exp(np.log(y).mean()) / math.exp(np.log(x).mean())
            ax.loglog(x, middle * x, "--", color="0.6", linewidth=1, label="∝ " + by, zorder=1)
            ax.set(title=f"time ∝ {by}$^{{{findings[by]:.2f}}}$", xlabel=label)
            ax.set_ylabel("ms an iteration")
            ax.set_xticks(x, [_short(value) for value in x])
            ax.xaxis.set_minor_formatter(NullFormatter())
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_major_formatter(FormatStrFormatter("%g"))
            ax.yaxis.set_minor_formatter(NullFormatter())
            ax.margins(y=0.15)
            ax.legend(loc="upper left")
        threads, memories = panels[4:]
        names = [str(row["threads"]) for row in results["threads"]]
        bars = threads.bar(
            names, [1e3 * row["seconds"] for row in results["threads"]], 0.5, color=_BLUE
        )
        threads.bar_label(bars, [f"×{factor:.2f}" for factor in findings["speed_up"].values()])
        threads.margins(y=0.12)
        threads.grid(axis="x", visible=False)
        threads.set(title="speed-up by threads", xlabel="threads (5000×2000, r = 20)")
        threads.set_ylabel("ms an iteration")
        x = [row["nnz"] for row in results["nnz"]]
        for values, colour, style, label in (
            (
                [bound(row) for row in results["nnz"]],
                _ORANGE,
                "--",
                f"2 matrices + {ARRAYS} (m+n)r",
            ),
            ([memory(row) for row in results["nnz"]], _GREEN, "o-", "peak"),
        ):
            memories.semilogx(x, np.array(values) / 1e6, style, color=colour, label=label)
        memories.set(title="memory, sparse", xlabel=fixed["nnz"], ylabel="MB", ylim=(0, None))
        memories.set_xticks(x, [_short(value) for value in x])
        memories.xaxis.set_minor_formatter(NullFormatter())
        memories.legend(loc="lower right")
        figure.savefig(path, dpi=110, metadata={"Software": None})


def main() -> int:
    """Measure all points, print the laws, write the numbers and the figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--iterations", type=int, default=20, help="k: timed are k and 2k")
    parser.add_argument("--repeats", type=int, default=5, help="runs of which the best counts")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="folder")
    parser.add_argument("--quick", action="store_true", help="two points a series, two repeats")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        fields, k, repeats = json.loads(options.point)
        print(json.dumps(measure(Point(**fields), k, repeats)))
        return 0

    repeats = 2 if options.quick else options.repeats
    results: dict[str, list[dict[str, Any]]] = {}
    for by, points in sweeps(options.quick).items():
        results[by] = []
        for point in points:
            row = in_process(point, options.iterations, repeats)
            results[by].append(row)
            shown = f"{by} = {row[by]:,}"
            took = f"{1e3 * row['seconds']:9.3f} ms an iteration {memory(row) / 1e6:9.1f} MB"
            print(f"{shown:18}{took}", flush=True)
    findings = report(results)

    options.out.mkdir(parents=True, exist_ok=True)
    numbers = {"iterations": options.iterations, "repeats": repeats, "points": results}
    numbers |= {"findings": findings, "environment": environment()}
    path = options.out / "scaling.json"
    path.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    draw(results, findings, options.out / "scaling.png")
    print(f"numbers and figure: {path}, {options.out / 'scaling.png'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
