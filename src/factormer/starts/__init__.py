"""Starts, at which iterations begin."""

from factormer.starts.base import Initializer as Initializer
from factormer.starts.given import Given as Given
from factormer.starts.merged import Merged as Merged
from factormer.starts.nndsvd import NNDSVD as NNDSVD
from factormer.starts.random import Random as Random
from factormer.starts.rotated import Rotated as Rotated
from factormer.starts.separable import Separable as Separable
from factormer.starts.vertices import Vertices as Vertices
