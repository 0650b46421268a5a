"""Files as people have them, read into a matrix that knows what its rows and columns stand for."""

from factormer.read.data import Axis as Axis
from factormer.read.data import Data as Data
from factormer.read.read import FORMATS as FORMATS
from factormer.read.read import read as read
from factormer.read.read import read_beside as read_beside
