"""Clients of NMF, as they are and patched."""
