"""The application that commands add themselves to, and what they share."""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(
    help="Nonnegative matrix factorization, made faster by a pretrained graph neural network.",
    epilog="Exit codes: 0 done, 1 wrong data or options (a sentence on stderr), 2 wrong usage, "
    "130 interrupted.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
console = Console()
given: ContextVar[list[str]] = ContextVar("given")  # the arguments, as `main` got them

Out = Annotated[Path, typer.Option(help="Folder for what is made.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None: ...
