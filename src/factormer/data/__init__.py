"""The data V, the only code that touches its entries: dense, sparse or of low rank."""

from factormer.data.base import Matrix, Normal, n_entries, n_rows, turned, zero_padding
from factormer.data.dense import Dense
from factormer.data.format import checked
from factormer.data.lowrank import LowRank, agreeing, sketch
from factormer.data.observed import Observed, stored
from factormer.data.sparse import Sparse

__all__ = [
    "Dense",
    "LowRank",
    "Matrix",
    "Normal",
    "Observed",
    "Sparse",
    "agreeing",
    "checked",
    "n_entries",
    "n_rows",
    "sketch",
    "stored",
    "turned",
    "zero_padding",
]
