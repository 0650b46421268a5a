"""What is asked of a factor besides a good fit."""

from factormer.penalties.several import Penalties as Penalties
from factormer.penalties.terms import L1 as L1
from factormer.penalties.terms import L2 as L2
from factormer.penalties.terms import Bounds as Bounds
from factormer.penalties.terms import Fixed as Fixed
from factormer.penalties.terms import Free as Free
from factormer.penalties.terms import Group as Group
from factormer.penalties.terms import Orthogonal as Orthogonal
from factormer.penalties.terms import Penalty as Penalty
from factormer.penalties.terms import Simplex as Simplex
from factormer.penalties.terms import Smooth as Smooth
from factormer.penalties.terms import onto_simplex as onto_simplex
