"""The application that commands add themselves to, and what they share."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

app = typer.Typer(
    help="Nonnegative matrix factorization: factors and a report of your file, rank by rank.",
    epilog="Exit codes: 0 done, 1 wrong data or options (a sentence on stderr), 2 wrong usage, "
    "3 an error of the program itself, 130 interrupted. With --json, stdout is one JSON object "
    "always; of an error it has error and exit_code.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
console = Console()
given: ContextVar[list[str]] = ContextVar("given")  # the arguments, as `main` got them
answered: ContextVar[bool] = ContextVar("answered")  # whether JSON has been printed

Out = Annotated[Path, typer.Option(help="Folder for what is made.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object on stdout, and nothing else."""
    from factormer.app.runs.folder import dump

    print(dump(value), end="", flush=True)
    answered.set(True)


def _version(asked: bool) -> bool:
    if asked:
        from importlib.metadata import version

        print(f"factormer {version('factormer')}")
        raise typer.Exit
    return asked


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Tell the version."),
    ] = False,
) -> None: ...


@contextmanager
def ended_as_interrupted() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C: what was done is kept."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
