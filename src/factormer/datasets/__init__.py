"""Data to try things on: generated, with the factors they were made of, and the paper's two."""

from factormer.datasets.documents import make_documents
from factormer.datasets.example import Example
from factormer.datasets.images import data_folder, load_jasper, load_yale
from factormer.datasets.mutations import make_mutations
from factormer.datasets.scene import make_scene
from factormer.datasets.swimmers import make_swimmers

__all__ = [
    "Example",
    "data_folder",
    "load_jasper",
    "load_yale",
    "make_documents",
    "make_mutations",
    "make_scene",
    "make_swimmers",
]
