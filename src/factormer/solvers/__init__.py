"""Iterative solvers of the factorisation problem, and the one loop that runs them."""
