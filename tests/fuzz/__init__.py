"""Inputs that nobody thought of: `make fuzz SECONDS=600`, or `python -m tests.fuzz`.

specs      what is tried, drawn by Hypothesis: small dictionaries that JSON can hold
build      from a specification to the arrays and options it stands for, the same on each machine
exact      objectives in extended precision, by code of its own
claims     what must hold of every answer, refusal and warning
options    the keywords, and how one of them is made wrong
entries    the public calls, each with the claims that are its own; those of the estimator in models
files      the command line on files made for it
judge      one specification, one verdict
pool       workers with a cap on time and memory, which may crash
state      counts and failures on disk, to continue from
campaign   several workers, one state, until the time is up
peer       the errors beside scikit-learn's
"""
