"""Penalties and constraints on a factor."""

from factormer.problem.penalties.penalty import Penalty as Penalty
from factormer.problem.penalties.several import NONE as NONE
from factormer.problem.penalties.several import Penalties as Penalties
from factormer.problem.penalties.terms import L1 as L1
from factormer.problem.penalties.terms import L2 as L2
from factormer.problem.penalties.terms import Bounds as Bounds
from factormer.problem.penalties.terms import Fixed as Fixed
from factormer.problem.penalties.terms import Free as Free
from factormer.problem.penalties.terms import Group as Group
from factormer.problem.penalties.terms import Near as Near
from factormer.problem.penalties.terms import Orthogonal as Orthogonal
from factormer.problem.penalties.terms import Simplex as Simplex
from factormer.problem.penalties.terms import Smooth as Smooth
from factormer.problem.penalties.terms import Volume as Volume
from factormer.problem.penalties.terms import onto_simplex as onto_simplex
