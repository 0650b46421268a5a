"""The paper alone: graphs, data sets, reproduction."""
