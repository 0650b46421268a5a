"""Ask when to stop: how far runs that a rule calls converged are from where they would have gone.

    make bench NAME=stop                        # every case, four starts each, 2 000 iterations
    make bench NAME=stop ARGS="digits:16 --report"     # rules once more, on the runs that are kept

Every run is iterated by the compiled core without a stop rule. Its errors, and how flat the problem
is at each look, are kept in FOLDER, so that any rule can be asked afterwards where it would have
stopped. Its excess is that of the error there over the last one of the same run; an error below
`errors.EXACT` counts as that. Large matrices are thinned out to some of their rows.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from factormer.data import for_core
from factormer.data.intake import as_matrix
from factormer_lab.bench.cases import GENERATED, Case, exponential, find
from factormer_lab.bench.errors import EXACT

ITERATIONS, ENTRIES, TOL = 2000, 1_000_000, 1e-4
EVERY, FIRST = 5, 10  # iterations between looks, and before the first one
STARTS = ("random-0", "random-1", "rotated", "columns")


def absorbance(m: int, n: int, r: int, *, seed: int, offset: float, noise: float) -> np.ndarray:
    """Mixtures of r smooth spectra over a constant offset, m samples of n wavelengths."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 1, n)
    centre, width = rng.random((2, r, 3, 1))
    curves = np.exp(-0.5 * ((t - centre) / (0.03 + 0.2 * width)) ** 2).sum(axis=1)
    V = offset + rng.dirichlet(np.full(r, 0.5), m) @ curves
    return np.maximum(V + noise * rng.standard_normal(V.shape), 0)


def heavy(m: int, n: int, r: int, *, seed: int) -> np.ndarray:
    """Planted components whose entries and noise have heavy tails."""
    rng = np.random.default_rng(seed)
    W, H = (rng.lognormal(sigma=1.5, size=(rows, r)) for rows in (m, n))
    return W @ H.T * rng.lognormal(sigma=0.4, size=(m, n))


MADE = (
    Case("absorbance-tall", 5, partial(absorbance, 2000, 150, 6, seed=1, offset=1.0, noise=0.002)),
    Case("absorbance-wide", 5, partial(absorbance, 156, 4000, 6, seed=2, offset=1.0, noise=0.01)),
    Case("absorbance-small", 4, partial(absorbance, 60, 200, 4, seed=3, offset=2.0, noise=0.001)),
    Case("absorbance-high", 12, partial(absorbance, 800, 400, 15, seed=4, offset=0.3, noise=0.01)),
    Case("absorbance-clean", 6, partial(absorbance, 300, 120, 6, seed=5, offset=3.0, noise=1e-4)),
    *(
        Case(f"absorbance-{k}", r, partial(absorbance, m, n, r + 2, seed=k, offset=c, noise=0.005))
        for k, (m, n, r, c) in enumerate(
            [(90, 700, 3, 0.5), (500, 120, 7, 2.0), (250, 250, 10, 5.0), (1500, 60, 4, 10.0)]
        )
    ),
    Case("heavy", 8, partial(heavy, 300, 400, 8, seed=0)),
    Case("heavy-small", 5, partial(heavy, 50, 40, 8, seed=1)),
    Case("low-noise", 10, partial(exponential, 300, 200, 10, seed=9, noise=1e-3)),
    Case(
        "low-noise-parts", 15, partial(exponential, 400, 300, 15, seed=9, noise=0.003, density=0.4)
    ),
)
NAMES = (
    *("exponential:10", "noisy:20", "sparse-factors:20", "many-parts:60", "pictures:50"),
    *("spectra:30", "topics:10", "spectrogram:25", "digits:10", "digits:16", "digits:30"),
    *("race-small:10", "race-sparse:16", "pictures-a:8", "spectra-a:12", "spectra-c:45"),
    *(f"{case.name}:{case.rank}" for case in GENERATED if case.name not in ("exact-2", "exact-3")),
    *("yale_faces_64:40", "yale_faces_64-T:10", "jasper_ridge-T:4", "jasper_ridge-T:10"),
    *("indian_pines:12", "extended_yaleb_32:20", "mnist_t10k:20", "audio_piano_spectrogram:15"),
    *("brca_sbs96:8", "brca_resampled:8", "all_aml_microarray:6", "pbmc68k_reduced_log:15"),
    *("pbmc_sctransform_counts:10", "reuters21578:20", "bbc_news:10"),
)


@dataclass(frozen=True)
class Run:
    """The errors after 0, 1, … iterations and, at `looks`, what a rule may look at."""

    errors: np.ndarray
    looks: np.ndarray
    flat: np.ndarray  # Σ_c ‖projected gradient of component c‖² / G_cc over ‖R‖²
    slope: np.ndarray  # the projected gradient over that of the start

    @classmethod
    def load(cls, path: Path) -> Run:
        """Read a run that was kept."""
        with np.load(path) as file:
            return cls(*(file[name] for name in ("errors", "looks", "flat", "slope")))


def cases(names: list[str]) -> list[Case]:
    """Return the cases of those names, all where none is given."""
    here = {f"{case.name}:{case.rank}": case for case in MADE}
    known = find([name for name in names or NAMES if name not in here], absent=bool(names))
    return [here[name] for name in names or here if name in here] + known


def thinned(V: Any) -> Any:
    """Return V, or evenly spread rows of it if it has many entries."""
    if scipy.sparse.issparse(V):
        return scipy.sparse.csr_matrix(V)
    V = V if V.shape[0] >= V.shape[1] else V.T
    step = -(-V.size // ENTRIES)
    return np.ascontiguousarray(V[::step])


def start(V: Any, r: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return factors to start from."""
    (m, n), (name, _, seed) = V.shape, kind.partition("-")
    rng = np.random.default_rng(int(seed or 0))
    scale = np.sqrt(4 * V.mean() / r)
    if name == "random":
        return scale * rng.random((m, r)), scale * rng.random((n, r))
    if name == "columns":
        some = [np.asarray(V[:, rng.choice(n, 5)].mean(axis=1)).ravel() for _ in range(r)]
        W = np.array(some).T
        return W, rng.random((n, r)) * 2 * V.mean() / (r * W.mean())
    import torch

    from factormer.data.intake import as_matrix
    from factormer.problem.problem import Problem
    from factormer.starts import Rotated

    W, H = Rotated()(Problem(as_matrix(V), r), torch.Generator().manual_seed(int(seed or 0)))
    return W.double().numpy(), H.double().numpy()


def slopes(V: Any, W: np.ndarray, H: np.ndarray) -> tuple[float, float]:
    """Return the decrement over ‖R‖², and the norm of the projected gradient."""
    decrement = norm = 0.0
    gram = H.T @ H
    VH = V @ H
    rest = (V.multiply(V).sum() if scipy.sparse.issparse(V) else np.vdot(V, V)) - 2 * np.vdot(VH, W)
    rest += np.vdot(W.T @ W, gram)
    for X, F, G in ((W, VH, gram), (H, V.T @ W, W.T @ W)):
        gradient = X @ G - F
        gradient = np.where(X > 0, gradient, np.minimum(gradient, 0))
        squares = np.square(gradient).sum(axis=0)
        decrement += (squares / np.maximum(G.diagonal(), 1e-300)).sum()
        norm += squares.sum()
    return decrement / max(float(rest), 1e-300), float(np.sqrt(norm))


def measure(case: Case, folder: Path, starts: list[str]) -> None:
    """Iterate from every start, and keep the runs that are not kept yet."""
    core = importlib.import_module("factormer._core")
    V = thinned(case.load())
    given = for_core(as_matrix(V))
    for kind in starts:
        path = folder / f"{case.name}-{case.rank}-{kind}.npz"
        if path.exists():
            continue
        x0 = start(V, case.rank, kind)
        rows = [(0, *slopes(V, *x0))]

        def look(lane: int, t: int, error: float, W: Any, H: Any, rows: list[Any] = rows) -> bool:
            if t >= FIRST and t % (EVERY if t <= 300 else 20) == 0:
                rows.append((t, *slopes(V, np.asarray(W), np.asarray(H))))
            return False

        rules = {"max_iter": ITERATIONS, "tol": 0, "order": False, "scale": "none", "threads": 1}
        _, _, history, _ = core.run(
            [given], [0], [case.rank], [0], [x0], **rules, finish="none", callback=look
        )
        looks, flat, slope = np.array(rows).T
        errors = np.array(history)[:, 0]
        slope = slope / slope[0]
        np.savez(path, errors=errors, looks=looks.astype(int), flat=flat, slope=slope)


Rule = Callable[[Run, int], bool]  # whether a run may end at look k


def gained(share: float, factor: float = 1.0, flat: float = np.inf) -> Rule:
    """Return the rule that what was gained since that share of the run is little."""

    def rule(run: Run, k: int) -> bool:
        t = run.looks[k]
        before, now = run.errors[int(t * share)], run.errors[t]
        return before - now <= factor * TOL * now and run.flat[k] <= flat * TOL

    return rule


def left(share: float, factor: float = 1.0, least: float = 0.0) -> Rule:
    """Return the rule that, if gains go on falling at the pace of the last two, little is left."""

    def rule(run: Run, k: int) -> bool:
        t = run.looks[k]
        first, middle, now = (run.errors[int(t * s)] for s in (share * share, share, 1))
        gain = middle - now
        ratio = max(gain / max(first - middle, 1e-300), least)
        return ratio < 1 and gain * ratio / (1 - ratio) <= factor * TOL * now

    return rule


def gradient(run: Run, k: int) -> bool:
    """Return whether the gradient is small beside that of the start, looked at every ten."""
    return bool(run.looks[k] % 10 == 0 and run.slope[k] <= TOL)


CHOSEN = "gained since .85, .3"  # the rule of core/stop.hpp
RULES: dict[str, Rule] = {
    "gradient of the start": gradient,
    CHOSEN: gained(0.85, 0.3),
    **{f"gained since 1/2, {f:g}": gained(1 / 2, f) for f in (3, 2, 1, 0.3)},
    **{f"gained since 2/3, {f:g}": gained(2 / 3, f) for f in (3, 2, 1, 0.5)},
    **{f"gained since 3/4, {f:g}": gained(3 / 4, f) for f in (2, 1, 0.5, 0.3)},
    **{f"gained since .85, {f:g}": gained(0.85, f) for f in (1, 0.5, 0.2)},
    **{f"gained since .9, {f:g}": gained(0.9, f) for f in (0.5, 0.2, 0.1)},
    **{f"{CHOSEN}, flat {f:g}": gained(0.85, 0.3, f) for f in (1, 0.1, 0.01)},
    **{
        f"left after {s:.2g}, {f:g}, ratio ≥ {q:g}": left(s, f, q)
        for s in (1 / 2, 2 / 3)
        for f in (3, 1)
        for q in (0, 0.3, 0.5)
    },
}


def stopped(run: Run, rule: Rule, cap: int) -> tuple[int, bool]:
    """Return the iteration at which a run ends, and whether it had converged."""
    for k, t in enumerate(run.looks):
        if t < FIRST or t > cap:
            continue
        if run.errors[t] <= EXACT * 1e-6 or rule(run, k):
            return int(t), True
    return cap, False


def report(runs: dict[str, Run], rules: dict[str, Rule], cap: int) -> str:
    """Return a table of rules: what the ends are worth, and what they cost."""
    lines = [
        f"{len(runs)} runs of at most {cap} iterations",
        "",
        "| rule | converged | within .1 % | .5 % | worst | iterations: geometric mean | mean |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, rule in rules.items():
        ends = {key: stopped(run, rule, cap) for key, run in runs.items()}
        excess = {
            key: max(runs[key].errors[t], EXACT) / max(runs[key].errors[-1], EXACT) - 1
            for key, (t, _) in ends.items()
        }
        done = [key for key, (_, converged) in ends.items() if converged]
        of = np.array([excess[key] for key in done] or [0.0])
        times = np.array([t for t, _ in ends.values()])
        worst = max(done, key=lambda key: excess[key], default="")
        lines.append(
            f"| {name} | {len(done) / len(runs):.0%} | {np.mean(of <= 1e-3):.1%} "
            f"| {np.mean(of <= 5e-3):.1%} | {of.max():.2%} {worst} "
            f"| {np.exp(np.log(times).mean()):.0f} | {times.mean():.0f} |"
        )
    return "\n".join(lines)


def limits(runs: dict[str, Run], rule: Rule) -> str:
    """Return a table of what different limits of iterations do."""
    lines = [
        "| max_iter | reach it | of these within .1 % | within 1 % | worst |",
        "|--:|--:|--:|--:|--:|",
    ]
    for cap in (100, 200, 300, 500, 1000):
        cut = [run for run in runs.values() if not stopped(run, rule, cap)[1]]
        of = np.array(
            [max(r.errors[cap], EXACT) / max(r.errors[-1], EXACT) - 1 for r in cut] or [0]
        )
        near = f"{np.mean(of <= 1e-3):.0%} | {np.mean(of <= 1e-2):.0%} | {of.max():.1%}"
        lines.append(f"| {cap} | {len(cut) / len(runs):.0%} | {near} |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is not kept yet, and print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cases", nargs="*", metavar="NAME:RANK")
    parser.add_argument("--folder", type=Path, default=Path("runs/bench/stop"))
    parser.add_argument("--starts", nargs="+", default=STARTS, metavar="KIND-SEED")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    parser.add_argument("--rule", default=CHOSEN, help="rule of the table of limits")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    chosen = cases(options.cases)
    for case in chosen if not options.report else ():
        print(f"{case.name}:{case.rank}", flush=True)
        measure(case, options.folder, options.starts)
    paths = {
        f"{case.name}:{case.rank} {kind}": options.folder / f"{case.name}-{case.rank}-{kind}.npz"
        for case in chosen
        for kind in options.starts
    }
    runs = {key: Run.load(path) for key, path in paths.items() if path.exists()}
    for kinds in ("random", "rotated", "columns"), ("random",), ("rotated",):
        some = {key: run for key, run in runs.items() if key.rpartition(" ")[2].startswith(kinds)}
        if some:
            print(f"\nFrom {', '.join(kinds)}: {report(some, RULES, ITERATIONS)}")
    print(f"\n{limits(runs, RULES[options.rule])}")
