"""What is only for the paper: graphs, data sets, reproduction."""
