"""Runs of the command line: fits of one file at one or more ranks, kept in a folder."""

from factormer.runs.fit import FitOptions as FitOptions
from factormer.runs.fit import fit as fit
from factormer.runs.folder import RankResult as RankResult
from factormer.runs.folder import RunFolder as RunFolder
