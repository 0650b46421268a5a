"""Training of the Factormer for every rank."""
