"""cNMF from counts to consensus, by its own stages; only the factorization call may be ours."""

from __future__ import annotations

import importlib
import os
import tempfile
from typing import Any

import factormer
from factormer_lab.bench.clients.clock import Clock
from factormer_lab.bench.clients.matrices import MATRICES, Named

LOSSES = {"squared error": "frobenius", "KL": "kullback-leibler"}


def measured(
    *, data: str, loss: str, way: str, seed: int, ranks: list[int], runs: int
) -> dict[str, Any]:
    """Seconds by stage, and cNMF's own prediction error and stability by rank."""
    module: Any = importlib.import_module("cnmf.cnmf")
    use(way, module)
    clock, matrix = Clock(), MATRICES[data]()
    with tempfile.TemporaryDirectory() as folder:
        counts = os.path.join(folder, "counts.h5ad")
        write(matrix, counts)
        client = module.cNMF(output_dir=folder, name="run")
        with clock.stage("prepare"):
            client.prepare(
                counts,
                components=ranks,
                n_iter=runs,
                seed=seed,
                beta_loss=LOSSES[loss],
                num_highvar_genes=min(2000, matrix.V.shape[1]),
            )
        with clock.stage("factorize"):
            client.factorize(worker_i=0, total_workers=1)
        with clock.stage("combine"):
            client.combine()
        with clock.stage("k_selection"):
            client.k_selection_plot(close_fig=True)
        with clock.stage("consensus"):
            client.consensus(ranks[len(ranks) // 2], density_threshold=2.0, show_clustering=False)
        stats = module.load_df_from_npz(client.paths["k_selection_stats"])
    return {
        "seconds": clock.seconds,
        "processor": clock.processor,
        "rank": [int(k) for k in stats["k"]],
        "error": [float(error) for error in stats["prediction_error"]],
        "stability": [float(value) for value in stats["silhouette"]],
    }


def use(way: str, module: Any) -> None:
    """Let the module factorize by itself, by single calls of ours, or by `factorize_many`."""
    theirs = module.non_negative_factorization
    if way == "many":
        factormer.patch("cnmf")
    if way == "single":
        # The solver is cNMF's choice among those of scikit-learn. Refits stay as they are.
        def ours(X: Any, *, solver: str, update_H: bool = True, **options: Any) -> Any:
            if update_H:
                return factormer.non_negative_factorization(X, **options)
            return theirs(X, solver=solver, update_H=False, **options)

        module.non_negative_factorization = ours


def write(matrix: Named, path: str) -> None:
    """Store counts as cNMF reads them."""
    anndata: Any = importlib.import_module("anndata")
    pandas: Any = importlib.import_module("pandas")
    anndata.AnnData(
        X=matrix.V,
        obs=pandas.DataFrame(index=matrix.rows),
        var=pandas.DataFrame(index=matrix.columns),
    ).write(path)
