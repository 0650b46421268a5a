"""Compiled CPU versions of hot loops, each with a slow twin in torch that names it."""
