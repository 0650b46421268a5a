"""cNMF: all its runs, at every rank, in one call of `factorize_many`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import numpy as np
import scipy.sparse

from factormer.clients.threads import using
from factormer.estimator.nmf import NMF
from factormer.estimator.options import Asked, init_of
from factormer.functions import factorize_many
from factormer.problem.losses import as_loss

_DENSE, _SHARE = (1e5, 2e7), 0.2  # entries, and the share of them above 0, to be made dense
# Parameters of a run that cNMF writes down; the solver is its choice among those of scikit-learn.
_TAKEN = ("alpha_W", "alpha_H", "l1_ratio", "beta_loss", "tol", "max_iter", "init", "solver")


def replacements(module: ModuleType) -> list[tuple[Any, str, Any]]:
    """Return what to put into cNMF: both ways to call its factorization stage."""
    client: Any = module

    def factorize(
        self: Any, worker_i: int = 0, total_workers: int = 1, skip_completed_runs: bool = False
    ) -> None:
        """Make the runs of this worker at once, and write the spectra of each as it ends."""
        runs = client.load_df_from_npz(self.paths["nmf_replicate_parameters"])
        counts = client.sc.read(self.paths["normalized_counts"])
        with open(self.paths["nmf_run_parameters"]) as file:
            options = client.yaml.load(file, Loader=client.yaml.FullLoader)
        left = np.flatnonzero(~runs["completed"].to_numpy(bool)) if skip_completed_runs else None
        left = range(len(runs)) if left is None else left
        mine = runs.iloc[list(client.worker_filter(left, worker_i, total_workers))]
        if not len(mine):
            return
        ranks, numbers, seeds = (
            mine[name].to_numpy(int) for name in ("n_components", "iter", "nmf_seed")
        )
        asked = translated(options, counts.X.shape, int(ranks.max()))
        runs = factorize_many(
            fitted(counts.X, asked), ranks, random_state=seeds, as_completed=True, **asked
        )
        with ThreadPoolExecutor(1) as writer:  # it compresses while the next runs go on
            written = []
            for k, result in runs:
                spectra = client.pd.DataFrame(
                    result.H.T, index=np.arange(1, ranks[k] + 1), columns=counts.var.index
                )
                path = self.paths["iter_spectra"] % (ranks[k], numbers[k])
                written.append(writer.submit(client.save_df_to_npz, spectra, path))
        for one in written:
            one.result()  # which raises what went wrong

    def factorize_multi_process(self: Any, total_workers: int) -> None:
        """Make all runs at once, with a thread for each worker asked for."""
        with using(total_workers):
            self.factorize()

    ours = (factorize, factorize_multi_process)
    return [(client.cNMF, function.__name__, function) for function in ours]


def fitted(X: Any, asked: dict[str, Any]) -> Any:
    """X, made dense where dense products are faster: 559×2000 with a quarter above 0, say."""
    size, (least, most) = X.shape[0] * X.shape[1], _DENSE
    if not (scipy.sparse.issparse(X) and as_loss(asked["loss"]).is_quadratic):
        return X
    return X.toarray() if least <= size <= most and X.nnz >= _SHARE * size else X


def translated(options: dict[str, Any], shape: tuple[int, int], rank: int) -> dict[str, Any]:
    """The parameters of a run, which are scikit-learn's, as keywords of `factorize_many`."""
    unknown = sorted(set(options) - set(_TAKEN))
    if unknown:
        raise ValueError(
            f"the parameters of the runs have {unknown[0]!r}; after patch('cnmf') they may have "
            f"{', '.join(_TAKEN)}: leave the others out, or call unpatch('cnmf')"
        )
    m, n = shape
    weights = {name: options[name] for name in _TAKEN[:3] if name in options}
    penalties = Asked.read(NMF(**weights))
    asked = {name: options[name] for name in ("tol", "max_iter") if name in options}
    loss = options.get("beta_loss", "frobenius")
    init, by_squares = init_of(options.get("init"), rank, shape), as_loss(loss).is_quadratic
    # scikit-learn's coordinate descent stops by the gradient, its multiplicative updates by the
    # fall of the error. A random start for counts is one that is fitted to their roots first.
    return asked | {
        "loss": loss,
        "stop": "auto" if by_squares else "sklearn",
        "init": "auto" if init == "random" and not by_squares else init,
        "regularize_W": penalties.on_W(n).terms,
        "regularize_H": penalties.on_H(m).terms,
    }
