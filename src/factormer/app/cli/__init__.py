"""The command line: parse, call, print."""

from __future__ import annotations

import re
import sys

from factormer.app.cli import fit, lab, others, patch, report, transform
from factormer.app.cli.app import answered, app, given, print_json
from factormer.app.cli.wording import typed
from factormer.starting import INTERRUPTED, end

__all__ = ["app", "fit", "lab", "main", "others", "patch", "report", "transform"]

WRONG, USAGE, BROKEN = 1, 2, 3


def main(argv: list[str] | None = None) -> int:
    """Run the command line, and return its exit code.

    0: done. 1: the data or the options are wrong, with a sentence on stderr. 2: wrong usage.
    3: an error of the program itself. 130: interrupted, with what was done kept where the command
    keeps anything. With --json there is an object on stdout in each case.
    """
    arguments = sys.argv[1:] if argv is None else argv
    if not {"--version", "--help"} & set(arguments):
        import factormer.functions  # noqa: F401 - what takes long to load, while Ctrl-C is one line
    end()  # from here on, commands handle Ctrl-C and keep their results
    given.set(arguments)
    answered.set(False)
    try:
        app(arguments)
    except SystemExit as stop:  # how the library ends every command, also Ctrl-C
        code = int(stop.code or 0)
        what = {USAGE: "wrong usage; stderr says how", INTERRUPTED: "interrupted"}
        return _ended(code, what.get(code, f"ended with {code}"))
    except KeyboardInterrupt:  # before the library, or after it
        print("factormer: interrupted", file=sys.stderr)
        return _ended(INTERRUPTED, "interrupted")
    except Exception as error:
        if "--debug" in arguments:
            raise
        sentence, code = _sentence(error)
        print(f"factormer: {sentence}", file=sys.stderr)
        return _ended(code, sentence)
    return 0


def _ended(code: int, sentence: str) -> int:
    """Print the error as JSON, unless an answer was printed."""
    asked = "--json" in given.get() and "--help" not in given.get()
    if code and asked and not answered.get():
        print_json({"schema": 1, "error": sentence, "exit_code": code})
    return code


def _sentence(error: Exception) -> tuple[str, int]:
    """The message for an error, and the exit code; our own sentences are printed unchanged."""
    text = " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror is not None and error.filename is not None:
        return f"{error.filename} cannot be used: {error.strerror.lower()}", WRONG
    if isinstance(error, ValueError | OSError | ImportError):
        return " ".join(typed(error).split()), WRONG
    if isinstance(error, MemoryError) or "allocate memory" in text or "out of memory" in text:
        asked = re.search(r"tried to allocate (\d+) bytes", text)  # torch prints much more
        what = f"{int(asked[1]) / 1e9:.1f} GB" if asked else text
        return f"there is not enough memory for this ({what}); choose less data or rank", WRONG
    kind = type(error).__name__
    return (
        f"an error of the program itself, {kind}: {text}; --debug shows where",
        BROKEN,
    )
