"""The consensus of cNMF as it is, of cNMF patched, and of `factormer.consensus`, by component.

    make clients NAME=agree ARGS="[pbmc] [brca] [--runs 100]"

All factorize the same matrix, the counts as cNMF prepares them, from as many random starts at the
same rank and with the same loss, tolerance and iterations. "patched" is cNMF itself after
`factormer.patch("cnmf")`. Each runs from two seeds, in a process of its own, and is kept in
build/clients; what is there is not run again. Components are matched so that the sum of cosines is
the largest. How well a consensus of cNMF agrees with that of another seed is the scale for how well
others agree with it. cNMF drops components far from the others at its default threshold, 0.5.
`make clients-env` builds the environment, and FACTORMER_DATA names the folder with the real
matrices. The very first run compiles: repeat it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from factormer_lab.bench.clients.clock import Clock
from factormer_lab.bench.clients.matrices import MATRICES, Named
from factormer_lab.bench.clients.on_cnmf import LOSSES, write

HERE = Path(__file__).resolve().parent
KEPT = Path.cwd() / "build" / "clients"
TOL, MAX_ITER, DENSITY = 1e-4, 1000, 0.5  # cNMF's own
SEEDS = (1, 2)
WHOSE = ("cnmf", "patched", "ours")
AGREE = 0.99  # a cosine from which two seeds of cNMF agree on a component


class Case(NamedTuple):
    """A matrix, the rank and the loss."""

    data: str
    rank: int
    loss: str


CASES = (Case("pbmc", 8, "squared error"), Case("brca", 4, "KL"))


def samples(data: str) -> Named:
    """The matrix with samples as rows."""
    found = MATRICES[data]()
    return Named(found.V.T.astype(float), found.columns, found.rows) if data == "brca" else found


def measured(case: Case, whose: str, seed: int, runs: int) -> dict[str, Any]:
    """Components, their stability, and seconds by stage; prepared by cNMF in either case."""
    module: Any = importlib.import_module("cnmf.cnmf")
    import factormer

    clock, matrix = Clock(), samples(case.data)
    with tempfile.TemporaryDirectory() as folder:
        counts = os.path.join(folder, "counts.h5ad")
        write(matrix, counts)
        client = module.cNMF(output_dir=folder, name="run")
        client.prepare(
            counts,
            components=[case.rank],
            n_iter=runs,
            seed=seed,
            beta_loss=LOSSES[case.loss],
            num_highvar_genes=min(2000, matrix.V.shape[1]),
        )
        X = module.sc.read(client.paths["normalized_counts"]).X
        X = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
        if whose != "ours":
            if whose == "patched":
                factormer.patch("cnmf")
            with clock.stage("factorize"):
                client.factorize(worker_i=0, total_workers=1)
                client.combine()
            with clock.stage("consensus"):
                client.consensus(case.rank, density_threshold=DENSITY, show_clustering=False)
            name = client.paths["consensus_spectra"] % (case.rank, str(DENSITY).replace(".", "_"))
            spectra = module.load_df_from_npz(name).to_numpy()
            density = module.load_df_from_npz(client.paths["local_density_cache"] % case.rank)
            kept = float((density.iloc[:, 0] < DENSITY).mean())
            client.k_selection_plot(close_fig=True)
            stats = module.load_df_from_npz(client.paths["k_selection_stats"])
            stability = [float(stats["silhouette"].iloc[0])]
        else:
            options = {"loss": LOSSES[case.loss], "tol": TOL, "max_iter": MAX_ITER}
            with clock.stage("consensus"):
                found = factormer.consensus(
                    X, case.rank, n_runs=runs, random_state=1000 * seed, **options
                )
            spectra, kept = np.asarray(found.H).T, float(found.kept.mean())
            stability = [float(s) for s in found.stability]
    return {
        "spectra": (spectra / np.linalg.norm(spectra, axis=1, keepdims=True)).tolist(),
        "stability": stability,
        "kept": kept,
        "loss": loss_of(X, spectra, case),
        "seconds": clock.seconds,
        "processor": clock.processor,
    }


def loss_of(X: np.ndarray, spectra: np.ndarray, case: Case) -> float:
    """The mean loss of an entry, with the usages that are best for these components."""
    import factormer

    W, *_ = factormer.non_negative_factorization(
        X,
        H=np.ascontiguousarray(spectra, dtype=X.dtype),
        n_components=case.rank,
        update_H=False,
        beta_loss=LOSSES[case.loss],
    )
    V, Y = X.astype(np.float64), np.maximum(W @ spectra, np.finfo(float).tiny)
    if case.loss == "squared error":
        return float(np.mean((V - Y) ** 2) / 2)
    return float(np.mean(np.where(V > 0, V * np.log(np.maximum(V, 1e-300) / Y), 0) - V + Y))


def path_of(case: Case, whose: str, seed: int, runs: int) -> Path:
    """Return the file that keeps the consensus of a package."""
    return KEPT / f"agree-{case.data}-{case.rank}x{runs}-{whose}-{seed}.json"


def run(case: Case, whose: str, seed: int, runs: int) -> None:
    """Make a consensus in a process of its own, and keep it."""
    path = path_of(case, whose, seed, runs)
    KEPT.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(HERE / "agree.py"), "--cell"]
    command += [json.dumps([case, whose, seed, runs])]
    log = path.with_suffix(".log")
    with log.open("w") as out:
        subprocess.run(command, check=False, stdout=out, stderr=out)
    if not path.exists():
        print(f"{path.stem} failed; its last words:\n{log.read_text()[-1000:]}")


def run_here(case: Case, whose: str, seed: int, runs: int) -> None:
    """Make a consensus, in a process of its own."""
    from factormer_lab.bench.environment import environment

    warnings.simplefilter("ignore")
    found = measured(case, whose, seed, runs)
    found["environment"] = environment(("cnmf", "scanpy"))
    path = path_of(case, whose, seed, runs)
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(found))
    unfinished.replace(path)


def matched(a: dict[str, Any], b: dict[str, Any]) -> np.ndarray:
    """The cosine of each component of one consensus to its partner in the other."""
    cosines = np.array(a["spectra"]) @ np.array(b["spectra"]).T
    return cosines[linear_sum_assignment(-cosines)]


def show(case: Case, runs: int) -> None:
    """Print what each made of it, and how well they agree."""
    found = {
        f"{whose} {seed}": json.loads(path.read_text())
        for whose in WHOSE
        for seed in SEEDS
        if (path := path_of(case, whose, seed, runs)).exists()
    }
    print(f"\n{case.data}, K={case.rank}, {case.loss}, {runs} runs")
    for name, one in found.items():
        stages = ", ".join(f"{stage} {s:.1f}" for stage, s in one["seconds"].items())
        worked = sum(one["processor"].values())
        stability = " ".join(f"{s:.2f}" for s in one["stability"])
        print(f"  {name}: seconds {sum(one['seconds'].values()):.1f} ({stages}), processor "
              f"{worked:.1f}, load {one['environment']['load']:.1f}; kept {one['kept']:.0%}, mean "
              f"loss {one['loss']:.6g}, stability {stability}")  # fmt: skip
    for a, b in combinations(found, 2):
        cosines = " ".join(f"{c:.3f}" for c in np.sort(matched(found[a], found[b]))[::-1])
        print(f"  {a} and {b}: cosines {cosines}")
    if len(found) == len(WHOSE) * len(SEEDS):
        agreed = matched(found["cnmf 1"], found["cnmf 2"]) >= AGREE
        for whose in WHOSE[1:]:
            least = min(
                matched(found["cnmf 1"], found[f"{whose} {k}"])[agreed].min() for k in SEEDS
            )
            print(f"  {whose}: at least {least:.3f} to cnmf 1 for the {agreed.sum()} components on "
                  f"which its two seeds agree to {AGREE}")  # fmt: skip


def main() -> None:
    """Run what is missing, then print how the two agree."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", nargs="*", help="pbmc, brca; both where none is named")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.cell:
        case, whose, seed, runs = json.loads(asked.cell)
        return run_here(Case(*case), whose, seed, runs)
    for case in CASES:
        if asked.data and case.data not in asked.data:
            continue
        for seed in SEEDS:
            for whose in WHOSE:
                if not path_of(case, whose, seed, asked.runs).exists():
                    run(case, whose, seed, asked.runs)
        show(case, asked.runs)
    return None


if __name__ == "__main__":
    os.environ.setdefault("MPLBACKEND", "agg")
    main()
