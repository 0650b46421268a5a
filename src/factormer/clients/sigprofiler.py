"""SigProfilerExtractor: all replicates of a number of signatures in one call of `factorize_many`.

Shapes: m kinds of mutations, n samples, r signatures.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

import numpy as np
from numpy.random import PCG64DXSM, Generator, SeedSequence
from scipy.special import rel_entr

from factormer.clients.threads import using
from factormer.data.warn import warn
from factormer.functions import factorize_many

_LEAST = 1e-4  # what a count of zero counts as, in its NMF and in ours
# It stops where 10 000 iterations gain nothing; on 96×100 counts our divergence at this tol is that
# of smaller ones to 1e-7, and at 1e-4 up to 5e-5 higher.
_TOL = 1e-6
_MAX_ITER = 10_000  # it allows up to a million, of multiplicative updates; ours need some hundred
_INITS = {"nndsvd_min": "nndsvda"}  # its own names; the others are ours too


def replacements(module: ModuleType) -> list[tuple[Any, str, Any]]:
    """Return what to put into SigProfilerExtractor: its function that makes all replicates."""
    client: Any = module
    theirs = client.parallel_runs

    def parallel_runs(
        execution_parameters: dict[str, Any],
        genomes: Any = 1,
        totalProcesses: int = 1,
        verbose: bool = False,
        replicate_generators: Any = None,
    ) -> list[Any]:
        """W, H and how close they are, for each replicate."""
        asked = execution_parameters
        if asked["gpu"]:
            warn("patch('sigprofiler') is for CPUs: with gpu=True its own NMF runs", UserWarning)
            return theirs(asked, genomes, totalProcesses, verbose, replicate_generators)
        count, V = int(asked["NMF_replicates"]), np.asarray(genomes)
        noise, starts = (
            replicate_generators[0][0].spawn(count),
            replicate_generators[1].spawn(count),
        )
        drawn = [_drawn(V, seed, asked["resample"]) for seed in noise]
        totals = [one.sum(axis=0) for one in drawn]
        cutoff, norm = asked["normalization_cutoff"], asked["matrix_normalization"]
        matrices = [
            np.asarray(
                client.normalize_samples(one, total, norm=norm, normalization_cutoff=cutoff), float
            )
            for one, total in zip(drawn, totals, strict=True)
        ]
        init = asked["NMF_init"]
        with using(os.cpu_count() or 1 if asked["cpu"] == -1 else asked["cpu"]):
            results = factorize_many(
                matrices,
                totalProcesses,
                loss="kullback-leibler",
                init=_INITS.get(init, init),
                tol=_TOL,
                max_iter=min(asked["max_NMF_iterations"], _MAX_ITER),
                random_state=[int(seed.generate_state(1)[0]) for seed in starts],
            )
        found = []
        for one, total, result in zip(matrices, totals, results, strict=True):
            sums = result.W.sum(axis=0)  # (r,)
            W, H = result.W / sums, (result.H * sums).T
            closeness = np.append(similarities(one, W @ H), result.n_iter)
            found.append((W, client.denormalize_samples(H, total), closeness))
        return found

    return [(client, parallel_runs.__name__, parallel_runs)]


def _drawn(V: np.ndarray, seed: SeedSequence, resample: bool) -> np.ndarray:
    """The data of a replicate: mutations of each sample drawn anew, by the client's generator."""
    if resample:
        totals = V.sum(axis=0)
        V = Generator(PCG64DXSM(seed)).multinomial(totals, (V / totals).T).T
    return np.maximum(V.astype(float), _LEAST)


def similarities(V: np.ndarray, fit: np.ndarray) -> np.ndarray:
    """Means over samples of what the client reports for each.

    L1 and L2 distance, each also in percent, Kullback–Leibler divergence and correlation, rounded
    sample by sample as by its `calculate_similarities`, which takes 0.1 s for 100 samples.
    """
    l1, l2 = (np.linalg.norm(V - fit, order, axis=0).round(3) for order in (1, 2))
    divergence = rel_entr(V / V.sum(axis=0), fit / fit.sum(axis=0)).sum(axis=0).round(5)
    A, B = (F - F.mean(axis=0) for F in (V, fit))
    norms = np.linalg.norm(A, axis=0) * np.linalg.norm(B, axis=0)
    by_sample = (
        l1,
        (100 * l1 / np.linalg.norm(V, 1, axis=0)).round(3),
        l2,
        (100 * l2 / np.linalg.norm(V, 2, axis=0)).round(3),
        np.where(np.isinf(divergence), 1000.0, divergence),
        ((A * B).sum(axis=0) / norms).round(3),
    )
    return np.array([values.mean() for values in by_sample])
