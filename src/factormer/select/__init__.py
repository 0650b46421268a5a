"""What a fit leaves open: how many components, which loss, and how far to trust the answer."""
