"""Questions that a fit leaves open: how many components, which loss, how far to trust it."""
