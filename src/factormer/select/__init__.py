"""What a fit leaves open: how stable it is, and which rank and loss describe the data."""
