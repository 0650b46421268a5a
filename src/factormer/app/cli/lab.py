"""The commands of the lab, found by the entry points of the group "factormer.commands"."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from typing import Any

import typer

from factormer.app.cli.app import app

_HELP = {
    "train": "Train a network; if stopped at any moment, the same command continues from there.",
    "reproduce": "Draw the paper's figures, with their numbers; RESULTS.md compares them with its "
    "claims.",
}


def add_commands(application: typer.Typer, found: Iterable[Any]) -> None:
    """Add the commands that are installed, and in place of the others what says how to get them.

    `found` are entry points: of importlib.metadata, or of the package importlib_metadata, which
    takes its place once anything imports it.
    """
    installed = {entry.name: entry for entry in found}
    for name, line in _HELP.items():
        if name in installed:
            application.command(name)(installed[name].load())
        else:
            anything = {"allow_extra_args": True, "ignore_unknown_options": True}
            application.command(name, help=line, context_settings=anything)(_missing(name))


def _missing(name: str) -> Callable[[], None]:
    def missing() -> None:
        raise ImportError(
            f"`factormer {name}` belongs to factormer-lab, which is not installed: in a clone of "
            "the repository, run pip install ./lab"
        )

    return missing


add_commands(app, tuple(entry_points(group="factormer.commands")))
