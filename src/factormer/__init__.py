"""Nonnegative matrix factorization, made faster by a pretrained graph neural network."""
