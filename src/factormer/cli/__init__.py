"""The command line: parse, call, print."""

from __future__ import annotations

import sys

from factormer.cli import fit, others, train
from factormer.cli.app import app, given

__all__ = ["app", "fit", "main", "others", "train"]


def main(argv: list[str] | None = None) -> int:
    """Run the command line, and return its exit code.

    0: done. 1: the data or the options are wrong, with a sentence on stderr. 2: wrong usage.
    130: interrupted, with what was done kept where the command keeps anything.
    """
    arguments = sys.argv[1:] if argv is None else argv
    given.set(arguments)
    try:
        app(arguments)
    except SystemExit as stop:  # how the library ends every command, also Ctrl-C
        return int(stop.code or 0)
    except (ValueError, OSError, ImportError) as error:
        if "--debug" in arguments:
            raise
        print(f"factormer: {error}", file=sys.stderr)
        return 1
    return 0
