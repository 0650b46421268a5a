"""A package of cNMF's shape: what `factormer.patch` touches, without what it does not."""

import json
import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse


def save_df_to_npz(obj: Any, filename: str) -> None:
    np.savez_compressed(
        filename, data=obj.values, index=obj.index.values, columns=obj.columns.values
    )


def load_df_from_npz(filename: str) -> pd.DataFrame:
    with np.load(filename, allow_pickle=True) as f:
        return pd.DataFrame(**f)


def worker_filter(iterable, worker_index, total_workers):
    return (p for i, p in enumerate(iterable) if (i - worker_index) % total_workers == 0)


def _read(path: str) -> Any:
    X = scipy.sparse.load_npz(path)
    genes = pd.DataFrame(index=[f"gene{j}" for j in range(X.shape[1])])
    return SimpleNamespace(X=X, var=genes)


sc = SimpleNamespace(read=_read)
yaml = SimpleNamespace(load=lambda file, Loader: json.load(file), FullLoader=None)


class cNMF:  # noqa: N801
    def __init__(self, output_dir: str):
        self.paths = {
            "normalized_counts": os.path.join(output_dir, "counts.npz"),
            "nmf_replicate_parameters": os.path.join(output_dir, "params.npz"),
            "nmf_run_parameters": os.path.join(output_dir, "run.yaml"),
            "iter_spectra": os.path.join(output_dir, "spectra.k_%d.iter_%d.npz"),
        }

    def prepare(self, V: Any, components: list[int], n_iter: int, **options: Any) -> None:
        scipy.sparse.save_npz(self.paths["normalized_counts"], scipy.sparse.csr_matrix(V))
        pairs = [(k, r) for k in components for r in range(n_iter)]
        seeds = np.random.RandomState(14).randint(1, 2**31 - 1, len(pairs))
        rows = [[*pair, seed, False] for pair, seed in zip(pairs, seeds, strict=True)]
        names = ["n_components", "iter", "nmf_seed", "completed"]
        self.save(pd.DataFrame(rows, columns=names))
        defaults = {
            "alpha_W": 0.0,
            "alpha_H": 0.0,
            "l1_ratio": 0.0,
            "beta_loss": "frobenius",
            "solver": "cd",
            "tol": 1e-4,
            "max_iter": 1000,
            "init": "random",
        }
        with open(self.paths["nmf_run_parameters"], "w") as file:
            json.dump(defaults | options, file)

    def save(self, runs: pd.DataFrame) -> None:
        save_df_to_npz(runs, self.paths["nmf_replicate_parameters"])

    def runs(self) -> pd.DataFrame:
        return load_df_from_npz(self.paths["nmf_replicate_parameters"])

    def factorize(self, worker_i=0, total_workers=1, skip_completed_runs=False):
        raise NotImplementedError("its own")

    def factorize_multi_process(self, total_workers):
        raise NotImplementedError("its own")
