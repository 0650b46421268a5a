"""How many readings of V data beyond memory takes: to 1 %, to 0.1 %, and to the tolerance.

    FACTORMER_DATA=DIR make bench NAME=passes ARGS="[--out FILE.json] [--starts 4] [name:rank …]"
    FACTORMER_DATA=DIR make bench NAME=passes ARGS="--loss kullback-leibler [name:rank …]"
    FACTORMER_DATA=DIR make bench NAME=passes ARGS="--sweep [--out FILE.json] [name …]"

Each matrix is written to a file and read in blocks; real ones are blown up first: rows are drawn
with repeats and get fresh noise. The optimum is the least error of any run here: those in blocks,
and runs in memory from several starts to a tolerance of 1e-5. A reading is a pass over the file.
Errors on V are known from the third pass on, so 3 is the least that can be measured.

With another loss, "to 1 %" is of the divergence, and errors of the third pass on are those of V.
With --sweep: the readings of `factorize_many` at ranks 2 to 12, and of single calls at each rank,
of which the mean, and those of rank 12, are "the readings of one fit".
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from factormer import factorize, factorize_many
from factormer.data.outofcore import blocks_of
from factormer.data.sources import Source, source_of
from factormer_lab.bench.cases import find

TARGETS = (1e-2, 1e-3)
GENERATED = ("sparse-factors:20", "noisy:20")
REAL = ("mnist_t10k:20", "extended_yaleb_32:20", "jasper_ridge:5", "bbc_news:10")
RANKS = range(2, 13)  # of a sweep
ROWS = 4000  # of a real matrix, after it was blown up


@dataclass(frozen=True)
class Count:
    """Passes of one matrix, and the excess over the optimum after each pass from the third on."""

    name: str
    shape: tuple[int, int]
    rank: int
    optimum: float
    in_memory: list[float]
    excess: list[float]
    passes: int
    status: str
    seconds: float

    def to(self, target: float) -> float:
        """The pass after which the error was within the target; infinite if it never was."""
        return next((k for k, e in enumerate(self.excess, 3) if e <= target), math.inf)


def blown_up(V: Any, rows: int, rng: np.random.Generator) -> Any:
    """Rows of V drawn with repeats, each entry times noise of mean 1 and deviation 0.1."""
    V = V[np.sort(rng.integers(V.shape[0], size=max(rows, V.shape[0])))]
    if scipy.sparse.issparse(V):
        V = V.copy()
        V.data *= np.maximum(1 + 0.1 * rng.standard_normal(len(V.data)), 0)
        return V
    return V * np.maximum(1 + 0.1 * rng.standard_normal(V.shape), 0)


def source(V: Any, folder: Path) -> Source:
    """The matrix in a file; a sparse one is cut by rows in memory, which costs the same passes."""
    if not scipy.sparse.issparse(V):
        np.save(folder / "V.npy", V)
        found = source_of(np.load(folder / "V.npy", mmap_mode="r"))
        assert found is not None
        return found
    csr = scipy.sparse.csr_array(V)
    return Source(lambda a, b: csr[a:b], V.shape, csr.dtype, "sparse store", float(csr.nnz), True)


def measure(name: str, n_starts: int, loss: str) -> Count:
    """Factorize one matrix in blocks and in memory."""
    (case,) = find([name])
    rng = np.random.default_rng(0)
    V = case.load() if name in GENERATED else blown_up(case.load(), ROWS, rng)
    m, n = V.shape
    with tempfile.TemporaryDirectory() as folder:
        stored = source(V, Path(folder))
        limit = stored.nbytes + 8 * (m + n) * (3 * (4 * case.rank + 10) + 20 * case.rank)
        tick = time.perf_counter()
        result = factorize(blocks_of(stored, limit), case.rank, loss=loss)
        seconds = time.perf_counter() - tick
    options: dict[str, Any] = {"max_iter": 400, "tol": 1e-5, "loss": loss}
    power = 1 if loss == "frobenius" else 2  # the divergence goes with the square of "rmse"
    inside = [
        float(factorize(V, case.rank, random_state=k, **options).rmse) for k in range(n_starts)
    ]
    errors = result.trace.rmse[result.trace.passes > 2]
    best = min([*inside, float(result.rmse), *errors.tolist()])
    return Count(
        name,
        (m, n),
        case.rank,
        best,
        [(error / best) ** power - 1 for error in inside],
        [(float(error) / best) ** power - 1 for error in errors],
        int(result.trace.passes[-1]),
        result.status.name,
        seconds,
    )


@dataclass(frozen=True)
class Sweep:
    """Passes of all ranks at once, those of each alone, and errors relative to those alone."""

    name: str
    shape: tuple[int, int]
    passes: int
    alone: list[int]
    excess: list[float]
    seconds: float
    seconds_alone: float


def swept(name: str) -> Sweep:
    """Factorize one matrix at all ranks in one call, and in one call for each."""
    (case,) = find([name])
    V = case.load() if name in GENERATED else blown_up(case.load(), ROWS, np.random.default_rng(0))
    m, n = V.shape
    ranks = [rank for rank in RANKS if rank < min(m, n)]
    with tempfile.TemporaryDirectory() as folder:
        stored = source(V, Path(folder))
        limit = stored.nbytes + 8 * (m + n) * (3 * (4 * ranks[-1] + 10) + 50 * sum(ranks))
        together = blocks_of(stored, limit)
        tick = time.perf_counter()
        results = factorize_many(together, ranks)
        seconds = time.perf_counter() - tick
        alone, errors, tick = [], [], time.perf_counter()
        for k, rank in enumerate(ranks):
            one = blocks_of(stored, limit)
            errors.append(float(factorize(one, rank, random_state=k).rmse))
            alone.append(one.record.passes)
        seconds_alone = time.perf_counter() - tick
    excess = [float(r.rmse) / error - 1 for r, error in zip(results, errors, strict=True)]
    passes = together.record.passes
    return Sweep(name, (m, n), passes, alone, excess, seconds, seconds_alone)


def sweep_table(sweeps: list[Sweep]) -> str:
    """The sweeps as Markdown."""
    lines = [
        "| matrix | shape | passes, all ranks | one fit, mean | rank 12 | sum of all | "
        "all ranks / mean | all ranks / rank 12 | worst excess |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    ratios: list[tuple[float, float]] = []
    for s in sweeps:
        mean = float(np.mean(s.alone))
        ratios.append((s.passes / mean, s.passes / s.alone[-1]))
        lines.append(
            f"| {s.name} | {s.shape[0]}×{s.shape[1]} | {s.passes} | {mean:.1f} | {s.alone[-1]} | "
            f"{sum(s.alone)} | {ratios[-1][0]:.2f} | {ratios[-1][1]:.2f} | "
            f"{100 * max(s.excess):.3f} % |"
        )
    by_mean, by_last = np.exp(np.mean(np.log(ratios), axis=0))
    lines.append(f"| geometric mean | | | | | | {by_mean:.2f} | {by_last:.2f} | |")
    return "\n".join(lines)


def table(counts: list[Count]) -> str:
    """The counts as Markdown, and their geometric means."""
    lines = ["| matrix | shape | r | to 1 % | to 0.1 % | to tol=1e-4 | excess after pass 3, 4, 5 |"]
    lines.append("|---|---|---|---|---|---|---|")
    for c in counts:
        excess = ", ".join(f"{100 * e:.3f} %" for e in c.excess[:3])
        to = " | ".join(f"{c.to(target):g}" for target in TARGETS)
        row = f"| {c.name} | {c.shape[0]}×{c.shape[1]} | {c.rank} | {to} | {c.passes} | {excess} |"
        lines.append(row)
    means = [math.exp(np.mean([math.log(c.to(target)) for c in counts])) for target in TARGETS]
    tol = math.exp(np.mean([math.log(c.passes) for c in counts]))
    lines.append(f"| geometric mean | | | {means[0]:.2f} | {means[1]:.2f} | {tol:.1f} | |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print, and write the numbers where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[*GENERATED, *REAL])
    parser.add_argument("--starts", type=int, default=4)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--loss", default="frobenius")
    parser.add_argument("--sweep", action="store_true")
    options = parser.parse_args()
    counts = []
    for name in options.names:
        counts.append(swept(name) if options.sweep else measure(name, options.starts, options.loss))
        print(f"{name}: {counts[-1]}", flush=True)
    print(sweep_table(counts) if options.sweep else table(counts))
    if options.out is not None:
        options.out.write_text(json.dumps([vars(count) for count in counts], indent=1) + "\n")


if __name__ == "__main__":
    main()
