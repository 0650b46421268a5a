"""Choices that the data decides: the number of components."""
