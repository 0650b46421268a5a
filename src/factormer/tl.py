"""Functions on AnnData, in the manner of scanpy's tools: they write into obsm, varm and uns.

    from factormer import tl
    tl.fit(adata, 10, layer="counts", mask="highly_variable", loss="kullback-leibler")
    tl.markers(adata)
    tl.metaprograms(adata, "donor")

The package anndata is not imported: whatever has X, obsm, varm and uns will do. A layer needs
layers, the name of a mask needs var, and copy=True needs a method copy. Names of genes are those of
var_names, or else of var.index; without either they are counted from 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool

from factormer.data.intake import is_sparse
from factormer.data.sources import source_of
from factormer.functions import factorize
from factormer.run.order import shares
from factormer.select.metaprograms import metaprograms as find
from factormer.select.metaprograms import specificity
from factormer.select.ranks.select import select_rank

__all__ = ["fit", "markers", "metaprograms"]

# Options of `factorize` that `select_rank` takes too: they say what is fitted, and to what data.
_OF_DATA = ("loss", "weights", "missing", "memory_limit")


def fit(
    adata: Any,
    rank: int | str = 10,
    *,
    layer: str | None = None,
    mask: Any = None,
    key_added: str = "nmf",
    copy: bool = False,
    random_state: int | None = 0,
    **options: Any,
) -> Any:
    """Factorize cells × genes, and write the factors beside the data.

    `adata.obsm["X_nmf"]` gets W, how much each cell uses each component; `adata.varm["nmf"]` gets
    H, the genes of each component, 0 for genes outside the mask; `adata.uns["nmf"]` gets what was
    asked, the status, errors and the share of each component.

    Parameters
    ----------
    adata : AnnData
        Cells × genes.
    rank : int or "select"
        Components; "select" chooses them from the data (`select_rank`).
    layer : str, optional
        Which layer to factorize; by default X.
    mask : str or bool array, optional
        Genes to factorize: a column of `adata.var` such as "highly_variable", or one bool a gene.
    key_added : str
        Another name than "nmf" for what is written.
    copy : bool
        Write into a copy, and return it; otherwise nothing is returned.
    random_state : int, optional
        Seed.
    **options
        Other keywords of `factorize`: loss, weights (of cells × genes, or one for each cell),
        regularize_W, n_init, max_iter, … A rank is chosen with those that say what the data is:
        loss, weights, missing and memory_limit.
    """
    adata = _writable(adata, copy)
    V = _entries(adata, layer)
    n_genes = V.shape[1]
    genes = _genes(adata, mask, n_genes)
    if genes is not None:
        V = V[:, genes]
        if getattr(options.get("weights"), "shape", ())[1:] == (n_genes,):
            options = options | {"weights": options["weights"][:, genes]}
    choice = None
    if rank == "select":
        of_data = {name: options[name] for name in _OF_DATA if name in options}
        choice = select_rank(V, random_state=random_state, **of_data)
        rank = choice.rank
    result = factorize(V, rank, random_state=random_state, **options)  # pyright: ignore[reportArgumentType]
    H = np.zeros((n_genes, result.H.shape[1]), dtype=result.H.dtype)
    H[slice(None) if genes is None else genes] = result.H
    adata.obsm[f"X_{key_added}"] = np.asarray(result.W)
    adata.varm[key_added] = H
    adata.uns[key_added] = {
        "params": {
            "rank": int(H.shape[1]),
            "layer": layer or "X",
            "mask": mask if isinstance(mask, str) else ("none" if mask is None else "given"),
            "random_state": -1 if random_state is None else int(random_state),
            **{name: _plain(value) for name, value in options.items()},
        },
        "status": result.status.name,
        "rmse": float(result.rmse),
        "loss": float(result.loss),
        "n_iter": int(result.n_iter),
        "shares": np.asarray(shares(result.factors), dtype=np.float64),
        **({} if choice is None else {"reason": choice.reason}),
    }
    return adata if copy else None


def metaprograms(
    adata: Any,
    sample: str,
    *,
    layer: str | None = None,
    mask: Any = None,
    key_added: str = "metaprograms",
    copy: bool = False,
    **options: Any,
) -> Any:
    """Find the programs that samples share (`factormer.metaprograms`), and write them.

    `adata.varm["metaprograms"]` gets the genes of each, 0 for genes outside the mask;
    `adata.obsm["X_metaprograms"]` gets how much each cell uses each; `adata.uns["metaprograms"]`
    gets the samples that have each (cosines, NaN where one has not), scores, the genes that set
    each apart, and how many there are and how sure that is, in words.

    Parameters
    ----------
    adata : AnnData
        Cells × genes.
    sample : str
        A column of `adata.obs`: the sample, donor or batch of each cell.
    layer, mask, key_added, copy
        As in `fit`.
    **options
        Other keywords of `factormer.metaprograms`: ranks, n_runs, min_samples, loss, …
    """
    adata = _writable(adata, copy)
    if sample not in adata.obs:
        raise ValueError(f"adata.obs has no column {sample!r}; it has {sorted(adata.obs)}")
    V = _entries(adata, layer)
    n_genes = V.shape[1]
    genes = _genes(adata, mask, n_genes)
    kept = np.arange(n_genes) if genes is None else np.flatnonzero(genes)
    V = V[:, kept]
    found = find(V, np.asarray(adata.obs[sample]), **options)
    H = np.zeros((n_genes, found.H.shape[1]))
    H[kept] = found.H
    names = _names(adata, n_genes)[kept]
    telling = np.argsort(-specificity(found.H), axis=0, kind="stable")[:50]
    adata.varm[key_added] = H
    adata.obsm[f"X_{key_added}"] = found.usage(V)
    adata.uns[key_added] = {
        "params": {
            "sample": sample,
            "layer": layer or "X",
            "mask": mask if isinstance(mask, str) else ("none" if mask is None else "given"),
            **{name: _plain(value) for name, value in options.items()},
        },
        "samples": np.array(found.samples),
        "cosines": found.cosines,
        "score": found.score,
        "genes": names[telling],
        "clear": bool(found.clear),
        "reason": found.reason,
    }
    return adata if copy else None


def markers(adata: Any, n: int = 20, *, key: str = "nmf") -> dict[str, list[str]]:
    """The genes that set each component apart, the most telling first.

    A gene's score is p · log(p / q): p is its share of the component, q the largest of its shares
    of other components (of one component alone, p). They are kept in `adata.uns["nmf"]["markers"]`,
    with their scores, as arrays of n × components.
    """
    if key not in adata.varm or key not in adata.uns:
        raise ValueError(
            f"adata.varm has no {key!r}; run factormer.tl.fit first, with key_added={key!r}"
        )
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise ValueError(f"n is {n!r}; it must be a whole number of at least 1")
    H = np.asarray(adata.varm[key], dtype=np.float64)
    scores, names = specificity(H), _names(adata, len(H))
    best = np.argsort(-scores, axis=0, kind="stable")[:n]  # (n, r)
    found = np.take_along_axis(scores, best, axis=0)
    adata.uns[key]["markers"] = {"names": names[best], "scores": found}
    return {
        f"component {c + 1}": [str(x) for x in names[best[:, c]][found[:, c] > 0]]
        for c in range(H.shape[1])
    }


def _writable(adata: Any, copy: bool) -> Any:
    """Return the AnnData to write into."""
    if not copy and getattr(adata, "isbacked", False) and getattr(adata, "is_view", False):
        raise ValueError(
            "adata is a view of a backed AnnData, into which nothing can be written; load it "
            "first: part = adata.to_memory()"
        )
    return adata.copy() if copy else adata


def _entries(adata: Any, layer: str | None) -> Any:
    if layer is None:
        V = adata.X
    else:
        layers = getattr(adata, "layers", {})
        if layer not in layers:
            raise ValueError(f"adata has no layer {layer!r}; it has {sorted(layers)}")
        V = layers[layer]
    if V is None:
        raise ValueError("adata has no X; name a layer")
    if is_sparse(V):
        return V.tocsr()
    return V if source_of(V) is not None else np.asarray(V)  # X of a backed AnnData is a source


def _names(adata: Any, n_genes: int) -> np.ndarray:
    """Return the names of the genes: as AnnData has them, or as the table of genes does."""
    names = getattr(adata, "var_names", None)
    if names is None:
        names = getattr(getattr(adata, "var", None), "index", None)
    if names is None or callable(names):  # lists have a method index
        names = [f"gene {k + 1}" for k in range(n_genes)]
    return np.asarray(names, dtype=str)


def _genes(adata: Any, mask: Any, n_genes: int) -> Bool[np.ndarray, " n"] | None:
    if mask is None:
        return None
    if isinstance(mask, str):
        var = getattr(adata, "var", {})
        if mask not in var:
            raise ValueError(f"adata.var has no column {mask!r}; it has {sorted(var)}")
        mask = var[mask]
    found = np.asarray(mask)
    if found.shape != (n_genes,) or found.dtype.kind != "b":
        raise ValueError(
            f"mask has shape {found.shape} and {found.dtype} values; it must be a bool for each of "
            f"the {n_genes} genes, or the name of such a column of adata.var"
        )
    if not found.any():
        raise ValueError("mask leaves no gene; it must be true for one at least")
    return found


def _plain(value: Any) -> Any:
    """Return a value that h5ad files can hold."""
    return value if isinstance(value, bool | int | float | str) else str(value)
