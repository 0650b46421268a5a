"""The report of a run: one page that needs nothing else."""

from factormer.report.page import write_report as write_report
