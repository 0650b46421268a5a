"""Training of the network that chooses the rank: planted problems, curves, loop, card."""
