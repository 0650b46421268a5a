"""Training of the networks: problems, objective, loop."""
