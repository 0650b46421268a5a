"""Check a run before anything is written, removed or fitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from factormer.app.read import Data
from factormer.app.runs.counts import Counts
from factormer.app.runs.folder import RunFolder
from factormer.functions import factorize
from factormer.run.registry import DETERMINED
from factormer.sentence import Option, Sentence

REMEDY = "choose another --out, or start again with --fresh"


def check_options(data: Data, ranks: Sequence[int], keywords: dict[str, Any]) -> None:
    """Raise what `factorize` would raise, by calling it with no iterations.

    From a random start, which costs nothing; the requested start is made on a small matrix.
    Networks for one rank fail at the lowest or at the highest rank.
    """
    if (several := keywords["n_init"]) > 1 and keywords["init"] in DETERMINED:
        raise ValueError(
            f"--init is {keywords['init']!r}, which would be the same for each of {several} runs; "
            "choose auto or random, or leave out --n-init"
        )
    one = {"max_iter": min(keywords["max_iter"], 0), "n_init": min(several, 1), "init": "random"}
    for rank in sorted({min(ranks), max(ranks)}):
        nothing = keywords | one
        factorize(data.V, rank, **nothing)
        if keywords["init"] != "auto":
            small = np.random.default_rng(0).random([min(size, rank + 2) for size in data.V.shape])
            factorize(small, rank, init=keywords["init"], accelerator=None, max_iter=0)


def check_taken(folder: RunFolder) -> None:
    """Refuse a folder with files of somebody else that a run would overwrite."""
    if (name := folder.taken()) is not None:
        raise ValueError(f"{folder.path} holds {name}, not part of a run; choose another --out")


def check_folder(
    folder: RunFolder, data: Data, counts: Counts, options: Any, *, fresh: bool
) -> None:
    """Refuse a folder with other files, or with results of other data or options."""
    check_taken(folder)
    if fresh:
        return
    if folder.in_blocks() is not None:
        raise ValueError(f"{folder.path} holds a run in blocks, of data beyond memory; {REMEDY}")
    if not folder.is_begun():
        return
    before = folder.description()
    if before["data"]["checksum"] != data.checksum() + counts.checksum():
        raise ValueError(f"{folder.path} holds a run on other data; {REMEDY}")
    now = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(options).items()}
    for name, value in now.items():
        was = before["options"].get(name, getattr(type(options), name))  # older runs have fewer
        if was != value:
            raise of_other_options(folder, name, was, value)


def of_other_options(folder: RunFolder, name: str, was: Any, value: Any) -> ValueError:
    """Return the error for a folder with results of another value of an option."""
    return ValueError(
        Sentence(
            "{path} holds a run with {name} {was!r}, not {value!r}; {remedy}",
            path=folder.path,
            name=Option(name),
            was=was,
            value=value,
            remedy=REMEDY,
        )
    )
