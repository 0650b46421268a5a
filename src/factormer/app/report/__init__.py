"""The report of a run: one page that needs nothing else."""

from factormer.app.report.page import write_report as write_report
