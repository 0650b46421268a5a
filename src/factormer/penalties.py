"""Penalties on W and H, by their public name."""

from factormer.problem.penalties import L1 as L1
from factormer.problem.penalties import L2 as L2
from factormer.problem.penalties import Bounds as Bounds
from factormer.problem.penalties import Fixed as Fixed
from factormer.problem.penalties import Free as Free
from factormer.problem.penalties import Group as Group
from factormer.problem.penalties import Orthogonal as Orthogonal
from factormer.problem.penalties import Penalties as Penalties
from factormer.problem.penalties import Penalty as Penalty
from factormer.problem.penalties import Simplex as Simplex
from factormer.problem.penalties import Smooth as Smooth
from factormer.problem.penalties import Volume as Volume
from factormer.problem.penalties import onto_simplex as onto_simplex
