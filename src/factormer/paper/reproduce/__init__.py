"""The paper's figures from our own runs, and a page that holds our numbers against its claims."""

from factormer.paper.reproduce.command import FIGURES, reproduce

__all__ = ["FIGURES", "reproduce"]
