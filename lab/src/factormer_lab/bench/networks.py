"""Where a network pays: seconds to 1 % and 0.1 % of the best error, without and with it.

    make bench NAME=networks ARGS='[CASE …]       # "name:rank" as in cases.py; default: UNSEEN'
    make bench NAME=networks ARGS="--ways none any-rank mine.safetensors --clock processor"

UNSEEN are matrices and ranks that no threshold was set by. Each way is a default call with that
accelerator ("none": without, "auto": as chosen) for a growing number of iterations, in turn with
the others; the best of ROUNDS counts, start included, and errors are computed here in float64. A
network is on by default where it is at least WORTH times faster than "none", and nowhere else: the
last lines say so, by ranks. On a machine with other work, `--clock processor` counts processor
seconds, with one thread of each library (set OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1).

    make bench NAME=networks ARGS="digits_8:10 jasper_ridge:4 --shares --ways none any-rank-prox"
    make bench NAME=networks ARGS="brca_resampled:8 --loss kullback-leibler --stack 8"

With --loss, --shares (rows of W that sum to one), --sparse WEIGHT (L1 on both factors), --solver or
--stack K (V cut into K matrices, factorized as a stack) the calls are such ones, and the error is
their objective.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import factormer
from factormer.penalties import L1, Simplex
from factormer_lab.bench.cases import EXACT, Case, exponential, find, pictures, rmse, spectra
from factormer_lab.bench.environment import environment

GRID = (2, 4, 6, 8, 10, 13, 16, 20, 25, 32, 40, 50, 63, 80, 100, 125, 160, 200, 250, 320, 400)
TARGETS = {"1 %": 1.01, "0.1 %": 1.001}
ROUNDS = 2
WORTH = 1.1
LOSSES = ("frobenius", "kullback-leibler", "itakura-saito")
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
_parts = partial(exponential, noise=0.05, density=0.2)
UNSEEN = (
    Case("pictures-a", 8, partial(pictures, 1500, 32, 60, seed=901)),
    Case("pictures-b", 20, partial(pictures, 3000, 24, 90, seed=902)),
    Case("pictures-c", 40, partial(pictures, 1200, 40, 70, seed=903)),
    Case("pictures-d", 60, partial(pictures, 2500, 30, 110, seed=904)),
    Case("pictures-e", 90, partial(pictures, 1800, 36, 120, seed=905)),
    Case("parts-a", 10, partial(_parts, 900, 1400, 10, seed=906)),
    Case("parts-b", 35, partial(_parts, 1600, 1100, 45, seed=907)),
    Case("parts-c", 70, partial(_parts, 1300, 1500, 70, seed=908)),
    Case("spectra-a", 12, partial(spectra, 6000, 180, 15, seed=909)),
    Case("spectra-b", 36, partial(spectra, 3000, 320, 50, seed=910)),
    Case("spectra-c", 45, partial(spectra, 2500, 400, 60, seed=911)),
)
Curve = list[tuple[int, float, float]]  # iterations, seconds, error


@dataclass(frozen=True)
class Asked:
    """What is minimised, on which clock; by default the plain squared error."""

    clock: str = "wall"
    loss: str = "frobenius"
    solver: str = "auto"
    shares: bool = False
    sparse: float = 0.0
    stack: int = 0

    @property
    def options(self) -> dict[str, Any]:
        """The keywords of a call."""
        sparse = L1(self.sparse) if self.sparse else None
        on_w = Simplex() if self.shares else sparse
        return {
            "loss": self.loss,
            "solver": self.solver,
            "regularize_W": on_w,
            "regularize_H": sparse,
        }

    def shaped(self, V: Any) -> Any:
        """V, or as a stack; a spectrum of each pixel in a row where rows are shares."""
        if self.shares and V.shape[0] < V.shape[1]:  # shares are of samples
            V = np.ascontiguousarray(V.T)
        if not self.stack:
            return V
        rows = len(V) // self.stack
        return torch.from_numpy(V[: rows * self.stack].reshape(self.stack, rows, -1))

    def error(self, V: Any, W: np.ndarray, H: np.ndarray) -> float:
        """The RMSE, or the objective where another is minimised, in float64."""
        W, H = W.astype(np.float64), H.astype(np.float64)
        if self.loss == "frobenius" and not self.sparse and not self.stack:
            return rmse(V, W, H)
        V, Y = np.asarray(V), np.maximum(W @ np.swapaxes(H, -1, -2), 1e-300)
        if self.loss == "frobenius":
            return float(np.square(V - Y).sum() / 2 + self.sparse * (W.sum() + H.sum()))
        ratio = np.maximum(V / Y, 1e-300)
        kullback = self.loss == "kullback-leibler"
        terms = V * np.log(ratio) - V + Y if kullback else ratio - np.log(ratio) - 1
        return float(terms.sum() + self.sparse * (W.sum() + H.sum()))


def curves(
    V: Any, rank: int, ways: list[str], asked: Asked, longest: float, grid: tuple[int, ...]
) -> dict[str, Curve]:
    """Seconds and errors of each way; one ends when it outlasts `longest` or falls no further."""
    found: dict[str, Curve] = {way: [] for way in ways}
    running, flat = list(ways), dict.fromkeys(ways, 0)
    for way in ways:  # which may compile
        call(V, rank, way, 12, asked)
    for k in grid:
        told = [[call(V, rank, way, k, asked) for way in running] for _ in range(ROUNDS)]
        for way, calls in zip(list(running), zip(*told, strict=True), strict=True):
            seconds, error = min(s for s, _ in calls), calls[0][1]
            least = min((e for *_, e in found[way]), default=math.inf)
            flat[way] = flat[way] + 1 if error > least * (1 - 1e-4) else 0
            found[way].append((k, seconds, error))
            if seconds > longest or flat[way] > 2:
                running.remove(way)
    return found


def call(V: Any, rank: int, way: str, k: int, asked: Asked) -> tuple[float, float]:
    """Seconds and error of one call of k iterations."""
    accelerator, now = None if way == "none" else way, CLOCKS[asked.clock]
    begun = now()
    options: dict[str, Any] = {"max_iter": k, "tol": 0.0, "random_state": 0}
    result = factormer.factorize(V, rank, accelerator=accelerator, **options, **asked.options)
    seconds, (W, H) = now() - begun, (np.asarray(F) for F in (result.W, result.H))
    return seconds, asked.error(V, W, H)


def seconds_to(curve: Curve, target: float) -> float:
    """Seconds of the first call that comes to the target; infinite if none does."""
    return min((seconds for _, seconds, error in curve if error <= target), default=math.inf)


def iterations_to(curve: Curve, target: float) -> float:
    """Iterations of the first call that comes to the target; infinite if none does."""
    return min((k for k, _, error in curve if error <= target), default=math.inf)


def speed(row: dict[str, Any], way: str, label: str) -> float:
    """How many times faster than without a network; NaN where neither arrives."""
    before, after = row["seconds"]["none"][label], row["seconds"][way][label]
    return math.nan if math.isinf(before) and math.isinf(after) else before / after


def say(text: str) -> None:
    """Print at once, so that a long run shows where it is."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def verdicts(rows: list[dict[str, Any]], ways: list[str]) -> list[str]:
    """For ranks below and from 30 on, and for all, how many times faster each network is."""
    lines = []
    groups = {
        "ranks below 30": [row for row in rows if row["rank"] < 30],
        "ranks from 30 on": [row for row in rows if row["rank"] >= 30],
        "all": rows,
    }
    for group, members in groups.items():
        for way in ways:
            if way == "none" or not members:
                continue
            parts = []
            for label in TARGETS:
                known = [speed(row, way, label) for row in members]
                both = [s for s in known if 0 < s < math.inf]
                mean = math.exp(np.log(both).mean()) if both else math.nan
                only = sum(s == math.inf for s in known), sum(s == 0 for s in known)
                verdict = "pays" if mean >= WORTH else "does not pay"
                parts.append(
                    f"{mean:.2f} times to {label} ({verdict}; {len(both)} matrices, on {only[0]} "
                    f"it alone arrives, on {only[1]} the other alone)"
                )
            lines.append(f"{group}, {way}: " + ", ".join(parts))
    return lines


def main() -> None:
    """Race, print a row a matrix and the verdicts, and keep what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="NAME[:RANK]")
    parser.add_argument("--ways", nargs="+", default=["none", "any-rank", "auto"])
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--loss", choices=LOSSES, default="frobenius")
    parser.add_argument("--solver", default="auto")
    parser.add_argument("--shares", action="store_true", help="rows of W sum to one")
    parser.add_argument("--sparse", type=float, default=0.0, help="weight of L1, V of mean 1")
    parser.add_argument("--stack", type=int, default=0, help="matrices that V is cut into")
    parser.add_argument("--seconds", type=float, default=4.0, help="a call this long is the last")
    parser.add_argument("--from", dest="first", type=int, default=6, help="iterations at least")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    ways = list(dict.fromkeys(["none", *options.ways]))
    own = {case.name: case for case in UNSEEN}
    named = [own[name] for name in options.cases if name in own]
    others = [name for name in options.cases if name not in own]
    cases = [*named, *(find(others) if others else ())] if options.cases else list(UNSEEN)
    grid, rows = tuple(k for k in GRID if k >= options.first), []
    asked = Asked(**{field.name: getattr(options, field.name) for field in fields(Asked)})
    say(f"{'':28s}" + "".join(f"{way:>22s}" for way in ways) + f"   to {' and '.join(TARGETS)}")
    for case in cases:
        V = asked.shaped(case.load())
        found = curves(V, case.rank, ways, asked, options.seconds, grid)
        best = max(min(e for curve in found.values() for *_, e in curve), EXACT)
        seconds = {
            way: {label: seconds_to(curve, best * q) for label, q in TARGETS.items()}
            for way, curve in found.items()
        }
        row = {"case": case.name, "rank": case.rank, "shape": tuple(V.shape), "seconds": seconds}
        rows.append(row | {"curves": found})
        told = "".join(
            f"{'  '.join(f'{s:.3f}' for s in seconds[way].values()):>20s} s" for way in ways
        )
        counts = "; ".join(
            ", ".join(f"{iterations_to(found[way], best * q):g}" for q in TARGETS.values())
            for way in ways
        )
        say(f"{case.name + ':' + str(case.rank):28s}" + told + f"   iterations {counts}")
    lines = verdicts(rows, ways)
    say("\n".join(lines))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        kept = {"environment": environment(), "asked": asdict(asked), "rows": rows}
        text = json.dumps(kept | {"verdicts": lines}, indent=1, default=str)
        (options.out / "networks.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
