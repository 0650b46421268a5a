"""The problem: a matrix, a rank, a loss and penalties."""
