"""Accelerators: proposals between the iterations of a solver, and the safeguard that judges them."""
