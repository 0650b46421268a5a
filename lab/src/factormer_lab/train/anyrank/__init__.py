"""Training of the any-rank network: problems, pool, rollout, loop, evaluation."""
