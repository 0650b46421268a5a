"""Data sets of the paper, by their public name."""

from factormer.paper.datasets import data_folder as data_folder
from factormer.paper.datasets import load_jasper as load_jasper
from factormer.paper.datasets import load_yale as load_yale
