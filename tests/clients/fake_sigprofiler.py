"""A package of SigProfilerExtractor's shape, with literal copies of what replicates go through."""

import numpy as np
import pandas as pd
import scipy.stats


def bootstrap(genomes, seed):
    """`BootstrapCancerGenomes`, sample by sample."""
    genomes = pd.DataFrame(genomes)
    a = pd.DataFrame(genomes.sum(axis=0)).transpose()
    normed = genomes / np.array(pd.concat([a] * genomes.shape[0]))
    columns = {
        i: list(seed.multinomial(a.iloc[:, i], normed.iloc[:, i], 1)[0])
        for i in range(normed.shape[1])
    }
    return pd.DataFrame(columns)


def normalize_samples(genomes, totals, norm="100X", normalization_cutoff=10000000):
    if norm == "none":
        return genomes
    genomes = np.array(genomes)
    over = list(np.where(totals > normalization_cutoff)[0])
    genomes[:, over] = genomes[:, over] / totals[over] * normalization_cutoff
    return pd.DataFrame(genomes)


def denormalize_samples(genomes, original_totals):
    results = genomes / np.sum(genomes, axis=0) * np.array(original_totals)
    return np.round(results, 0).astype(int)


def similarities(genomes, fit):
    """What `calculate_similarities` makes of samples, and `nnmf_cpu` of that."""
    rows = []
    for p, q in zip(genomes.T, fit.T, strict=True):
        l1 = round(np.linalg.norm(p - q, ord=1), 3)
        l2 = round(np.linalg.norm(p - q, ord=2), 3)
        rows.append(
            [
                l1,
                round(l1 / np.linalg.norm(p, ord=1) * 100, 3),
                l2,
                round(l2 / np.linalg.norm(p, ord=2) * 100, 3),
                np.round(scipy.stats.entropy(p, q), 5),
                np.round(np.corrcoef(p, q)[0, 1], 3),
            ]
        )
    return np.mean(rows, axis=0)


def parallel_runs(
    execution_parameters, genomes=1, totalProcesses=1, verbose=False, replicate_generators=None
):
    return ["its own"]
