"""Unmixing of Jasper Ridge, beside its reference.

For each way to find four endmembers: the spectral angle of each to the reference under the best
pairing, the error of the abundances, whether the fit converged, and its seconds. No fit sees the
reference: the weight of the volume is the misfit of the fit without it, and its delta a share of
the size of a component, as the command line proposes. Those two rules were settled on this matrix.

Vertex component analysis (Nascimento & Dias, 2005) is written here after its paper, so that it sees
the same bands and the same reference; it is random, and the median of its runs counts.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from factormer import factorize
from factormer.datasets import data_folder
from factormer.penalties import Simplex, Volume
from factormer.solvers.coding import Coder
from factormer_lab.bench.environment import environment

RANK = 4


class Scene(NamedTuple):
    """Pixels × bands as reflectances, and the reference: bands × 4 and pixels × 4."""

    V: np.ndarray
    endmembers: np.ndarray
    abundances: np.ndarray
    names: list[str]


class Score(NamedTuple):
    """How near a result is to the reference; angles in degrees."""

    way: str
    angles: list[float]
    mean_angle: float
    abundance_rmse: float
    rmse: float
    status: str
    iterations: int
    seconds: float


def load(folder: Path) -> Scene:
    """Jasper Ridge from jasper_ridge.npz."""
    data = np.load(folder / "jasper_ridge.npz")
    V = data["V"].T.astype(np.float64) / float(data["scale"])
    return Scene(
        V, data["endmembers"], data["abundances"].T, [str(x) for x in data["endmember_names"]]
    )


def scored(scene: Scene, way: str, W, H, status: str, iterations: int, seconds: float) -> Score:
    """The score of endmembers H, with the best abundances W of sum one."""
    unit = [X / np.linalg.norm(X, axis=0) for X in (scene.endmembers, H)]
    angles = np.degrees(np.arccos(np.clip(unit[0].T @ unit[1], -1, 1)))
    rows, pairs = linear_sum_assignment(angles)
    each = angles[rows, pairs]
    error = np.sqrt(np.mean((W[:, pairs] - scene.abundances) ** 2))
    rmse = np.sqrt(np.mean((scene.V - W @ H.T) ** 2))
    mean, error, rmse = float(each.mean()), float(error), float(rmse)
    return Score(way, each.tolist(), mean, error, rmse, status, iterations, seconds)


def shares(V: np.ndarray, H: np.ndarray) -> np.ndarray:
    """Abundances of sum one, exactly."""
    import torch

    from factormer.data.intake import as_matrix

    return Coder.of(torch.from_numpy(H.copy()), total=1.0)(as_matrix(V)).numpy()


def vca(V: np.ndarray, r: int, rng: np.random.Generator) -> list[int]:
    """Vertex component analysis for data of much signal: rows of V, projected onto a plane."""
    basis = np.linalg.svd(V.T @ V)[0][:, :r]
    X = V @ basis
    Y = X / (X @ X.mean(axis=0))[:, None]
    A = np.zeros((r, r))
    A[-1, 0] = 1
    chosen = []
    for k in range(r):
        w = rng.standard_normal(r)
        f = w - A @ (np.linalg.pinv(A) @ w)
        chosen.append(int(np.argmax(np.abs(Y @ f))))
        A[:, k] = Y[chosen[-1]]
    return chosen


def ways(scene: Scene, n_vca: int) -> list[Score]:
    """All of them, each printed as it is done."""
    V, found = scene.V, []

    def add(score: Score) -> Score:
        each = ", ".join(f"{n} {a:.1f}°" for n, a in zip(scene.names, score.angles, strict=True))
        print(
            f"{score.way:34s} mean {score.mean_angle:4.1f}° ({each}); abundances ±"
            f"{score.abundance_rmse:.3f}; RMSE {score.rmse:.5f}; {score.status} after "
            f"{score.iterations}, {score.seconds:.1f} s",
            flush=True,
        )
        found.append(score)
        return score

    runs = []
    for seed in range(n_vca):
        tick = time.perf_counter()
        H = V[vca(V, RANK, np.random.default_rng(seed))].T
        seconds = time.perf_counter() - tick
        runs.append(scored(scene, "VCA", shares(V, H), H, "random", 0, seconds))
    runs.sort(key=lambda score: score.mean_angle)
    add(runs[len(runs) // 2]._replace(way=f"VCA, median of {n_vca}"))

    def fit(way: str, **options) -> Score:
        tick = time.perf_counter()
        result = factorize(V, RANK, regularize_W=Simplex(), **options)
        seconds, name = time.perf_counter() - tick, result.status.name
        return add(scored(scene, way, result.W, result.H, name, result.n_iter, seconds))

    fit("vertices alone (N-FINDR)", init="vertices", max_iter=0)
    fit("shares, from a random start", init="random")
    plain = fit("shares")
    misfit = plain.rmse**2 * V.size / 2
    result = factorize(V, RANK, regularize_W=Simplex())
    delta = 0.001 * float((result.H**2).sum()) / RANK
    for times in (0.5, 1.0):
        volume = Volume(times * misfit, delta)
        fit(f"shares, volume of {times:g} misfits", regularize_H=volume)
    return found


def main() -> None:
    """Print and keep the scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of jasper_ridge.npz; $FACTORMER_DATA")
    parser.add_argument("--vca", type=int, default=20, help="runs of VCA")
    parser.add_argument("--out", type=Path, help="JSON file for the scores")
    args = parser.parse_args()
    scores = ways(load(data_folder(args.data)), args.vca)
    if args.out is not None:
        contents = {"environment": environment(), "scores": [s._asdict() for s in scores]}
        args.out.write_text(json.dumps(contents, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
