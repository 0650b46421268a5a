"""From what was asked to a result: choose, iterate, finish."""
