"""The paper's figures from our own runs, and a page that compares our numbers with its claims."""

from factormer_lab.paper.reproduce.command import FIGURES, reproduce

__all__ = ["FIGURES", "reproduce"]
