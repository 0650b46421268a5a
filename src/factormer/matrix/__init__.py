"""The data V, the only code that touches its entries: dense, sparse or of low rank."""

from factormer.matrix.base import Matrix, Normal, n_entries, n_rows, turned, zero_padding
from factormer.matrix.dense import Dense
from factormer.matrix.format import checked
from factormer.matrix.lowrank import LowRank, agreeing, sketch
from factormer.matrix.observed import Observed, stored
from factormer.matrix.sparse import Sparse

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
