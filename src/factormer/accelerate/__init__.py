"""Accelerators: proposals between the iterations of a solver, and who judges them."""
