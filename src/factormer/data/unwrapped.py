"""The matrix inside of an object around one: X of an AnnData, the rows of a LazyFrame."""

from __future__ import annotations

from typing import Any


def is_anndata(V: Any) -> bool:
    """Whether V is an AnnData, in memory, backed by a file, or a view of one."""
    return type(V).__module__.partition(".")[0] == "anndata" and hasattr(V, "isbacked")


def unwrapped(V: Any) -> Any:
    """Return X of an AnnData and the collected rows of a polars LazyFrame; V if it is neither.

    A view of a backed AnnData is loaded into memory; a whole one stays in its file.
    """
    if is_anndata(V):
        if V.isbacked:
            if not V.is_view:
                return V  # a source of rows
            V = V.to_memory()
        if V.X is None:
            raise ValueError(
                f"V is an AnnData without X; pass one of its layers, {sorted(V.layers)}, such as "
                "adata.layers['counts']"
            )
        return V.X
    if type(V).__module__.partition(".")[0] == "polars" and hasattr(V, "collect"):
        return V.collect()
    return V
