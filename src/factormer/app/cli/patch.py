"""The command that runs a program with our NMF in the place of scikit-learn's."""

from __future__ import annotations

import runpy
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from factormer.app.cli.app import app
from factormer.starting import INTERRUPTED

# All that follows the program is for the program.
_ITS_OWN = {"allow_interspersed_args": False, "ignore_unknown_options": True}


@app.command(context_settings=_ITS_OWN)
def patch(
    script: Annotated[Path, typer.Argument(help="A Python program.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Its arguments.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Take the solver and start that are named.")
    ] = False,
) -> None:
    """Run a Python program as it is, with factormer in the place of scikit-learn's NMF."""
    from factormer.clients.sklearn import patch_sklearn

    if not script.is_file():
        raise ValueError(f"{script} is not a file; name a Python program")
    patch_sklearn(strict=strict)
    before = sys.argv, sys.path[0]
    sys.argv, sys.path[0] = [str(script), *(arguments or ())], str(script.resolve().parent)
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as stop:
        raise typer.Exit(_code(stop.code)) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except Exception:
        traceback.print_exc()
        raise typer.Exit(1) from None
    finally:
        sys.argv, sys.path[0] = before


def _code(code: object) -> int:
    """The exit code of a program; text is an error, and is printed."""
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return 1
