"""Planted ranks: how often they are found."""
