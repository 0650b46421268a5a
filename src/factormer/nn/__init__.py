"""The networks; they know matrices and factors, and no solver."""
