"""Iterative solvers of the factorization problem, and the one loop that runs them."""
