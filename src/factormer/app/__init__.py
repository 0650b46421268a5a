"""The command `factormer`: reading files, run folders, reports."""
