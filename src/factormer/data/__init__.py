"""The data V, the only code that touches its entries: dense, sparse, low-rank, or in blocks."""

from factormer.data.base import Matrix, Normal, n_entries, n_rows, turned, zero_padding
from factormer.data.blocks import Blocks, Seen
from factormer.data.core import for_core
from factormer.data.dense import Dense
from factormer.data.format import checked
from factormer.data.lowrank import LowRank, agreeing, enriched, sketch
from factormer.data.observed import Observed, counted, stored
from factormer.data.sparse import Sparse

__all__ = [
    "Blocks",
    "Dense",
    "LowRank",
    "Matrix",
    "Normal",
    "Observed",
    "Seen",
    "Sparse",
    "agreeing",
    "checked",
    "counted",
    "enriched",
    "for_core",
    "n_entries",
    "n_rows",
    "sketch",
    "stored",
    "turned",
    "zero_padding",
]
