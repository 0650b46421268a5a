"""Keep from the page where files lie on the computer on which a run was made."""

from __future__ import annotations

import shlex
from pathlib import PureWindowsPath
from typing import Any

_TEXTS = ("--title",)  # options whose value is no path, whatever is in it


def without_folders(command: str) -> str:
    """A command with the names of its files alone, without the folders that they are in."""
    try:
        words = shlex.split(command)
    except ValueError:  # not one that a shell would take
        words = command.split()
    kept = [
        word if before in _TEXTS or word.startswith(tuple(f"{t}=" for t in _TEXTS)) else _bare(word)
        for before, word in zip(["", *words], words, strict=False)
    ]
    return shlex.join(kept)


def options_without_folders(options: dict[str, Any]) -> dict[str, Any]:
    """Options likewise: an accelerator may be a file."""
    return {k: _bare(v) if isinstance(v, str) else v for k, v in options.items()}


def _bare(word: str) -> str:
    option, is_given, value = word.partition("=") if word.startswith("--") else ("", "", word)
    if not any(sign in value for sign in ("/", "\\")) and not value.startswith("~"):
        return word
    return f"{option}{is_given}{PureWindowsPath(value).name or '.'}"  # which takes both slashes
