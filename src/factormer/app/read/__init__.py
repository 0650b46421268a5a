"""Files as people have them, read into a matrix that knows what its rows and columns stand for."""

from factormer.app.read.data import Axis as Axis
from factormer.app.read.data import Data as Data
from factormer.app.read.large import opened as opened
from factormer.app.read.read import FORMATS as FORMATS
from factormer.app.read.read import read as read
from factormer.app.read.read import read_beside as read_beside
