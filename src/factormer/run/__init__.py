"""From a request to a result: choose, iterate, finish."""
