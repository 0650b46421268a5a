"""The networks; they use matrices and factors, but no solver."""
