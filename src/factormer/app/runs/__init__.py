"""Runs of the command line: fits of one file at one or more ranks, kept in a folder."""

from factormer.app.runs.fit import FitOptions as FitOptions
from factormer.app.runs.fit import fit as fit
from factormer.app.runs.folder import RankResult as RankResult
from factormer.app.runs.folder import RunFolder as RunFolder
