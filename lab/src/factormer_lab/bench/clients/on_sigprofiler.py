"""SigProfilerExtractor from counts to signatures; only what factorizes may be ours."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

import factormer
from factormer_lab.bench.clients.clock import Clock
from factormer_lab.bench.clients.matrices import MATRICES


def measured(
    *, data: str, loss: str, way: str, seed: int, ranks: list[int], runs: int
) -> dict[str, Any]:
    """Seconds of its NMF stage and of all, and its reconstruction error and stability by rank."""
    extractor: Any = importlib.import_module("SigProfilerExtractor.sigpro")
    module: Any = importlib.import_module("SigProfilerExtractor.subroutines")
    pandas: Any = importlib.import_module("pandas")
    if way == "many":
        factormer.patch("sigprofiler")
    if way == "single":
        module.parallel_runs = one_by_one(module)
    clock, matrix, found = Clock(), MATRICES[data](), []
    watch(module, clock, found)
    with tempfile.TemporaryDirectory() as folder:
        counts, seeds = (os.path.join(folder, name) for name in ("counts.txt", "seeds.txt"))
        frame = pandas.DataFrame(matrix.V, matrix.rows, matrix.columns)
        frame.rename_axis("MutationType").to_csv(counts, sep="\t")
        pandas.DataFrame({"Seed": [seed]}).to_csv(seeds, sep="\t")
        with clock.stage("all"):
            extractor.sigProfilerExtractor(
                "matrix",
                os.path.join(folder, "out"),
                counts,
                minimum_signatures=ranks[0],
                maximum_signatures=ranks[-1],
                nmf_replicates=runs,
                seeds=seeds,
                cpu=2,
                assignment_cpu=2,
                make_decomposition_plots=False,
            )
    return {
        "seconds": clock.seconds,
        "processor": clock.processor,
        "rank": [one["rank"] for one in found],
        "error": [one["error"] for one in found],
        "stability": [one["stability"] for one in found],
        "divergence": [one["divergence"] for one in found],
    }


def watch(module: Any, clock: Clock, found: list[dict[str, Any]]) -> None:
    """Clock the NMF stage, and note what comes of each rank; both go on as they were."""
    runs, decipher = module.parallel_runs, module.decipher_signatures

    def clocked(*given: Any, **named: Any) -> Any:
        with clock.stage("factorize"):
            return runs(*given, **named)

    def noted(parameters: Any, *, genomes: Any, i: int, **named: Any) -> Any:
        results = decipher(parameters, genomes=genomes, i=i, **named)
        signatures, exposures, stability, replicates = (results[k] for k in (0, 1, 4, 10))
        gap = np.linalg.norm(genomes - signatures @ exposures) / np.linalg.norm(genomes)
        divergence = float(np.asarray(replicates)[:, 4].mean())  # of samples, as it reports it
        found.append(
            {"rank": i, "error": gap, "stability": float(stability), "divergence": divergence}
        )
        return results

    module.parallel_runs, module.decipher_signatures = clocked, noted


def one_by_one(module: Any) -> Callable[..., Any]:
    """Make its replicates one after another, each by a single call of ours in place of its NMF."""

    def nnmf(genomes: Any, rank: int, *, generator: Any, **_: Any) -> Any:
        V, seed = np.asarray(genomes, float), int(generator.integers(2**31))
        result = factormer.factorize(
            V, rank, loss="kullback-leibler", init="random", tol=1e-6, max_iter=10_000,
            random_state=seed,
        )  # fmt: skip
        near = module.calculate_similarities(V, result.W @ result.H.T)[0].iloc[:, 2:]
        return result.W, result.H.T, np.append(near.to_numpy().mean(axis=0), result.n_iter)

    def runs(
        parameters: Any, *, genomes: Any, totalProcesses: int, replicate_generators: Any, **_: Any
    ) -> list[Any]:
        noise, starts = replicate_generators[0][0], replicate_generators[1]
        count = int(parameters["NMF_replicates"])
        module.nnmf_cpu = nnmf
        return [
            module.pnmf(
                [1, list(pair)],
                genomes=genomes,
                totalProcesses=totalProcesses,
                resample=parameters["resample"],
                init=parameters["NMF_init"],
                normalization_cutoff=parameters["normalization_cutoff"],
                norm=parameters["matrix_normalization"],
                execution_parameters=parameters,
            )
            for pair in zip(noise.spawn(count), starts.spawn(count), strict=True)
        ]

    return runs
