"""Many jobs in plain words and numbers: stored, and compared another day."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np

from factormer.data.digest import checksum, described
from factormer.many.jobs import COMMON, Jobs
from factormer.many.loose import Loose
from factormer.nn import zoo
from factormer.run.request import Request

FORMAT = 1  # of the files of a sweep
_LATER = ("stop",)  # that the first files do not have: stored where it is no default
_DEFAULTS = {
    name: inspect.signature(Request.of).parameters[name].default for name in COMMON
}  # so that a default that is spelled out is no difference


def asked(jobs: Jobs) -> dict[str, Any]:
    """All that the results depend on, in the order in which differences are told."""
    first = jobs.run == 0
    return {
        "format": FORMAT,
        "problems": len(np.unique(jobs.problem)),
        "data": checksum(described(_data(jobs))),
        "ranks": jobs.rank[first].tolist(),
        "n_init": int(jobs.run.max()) + 1,
        "resample": jobs.resample,
        "random_state": _seeds(jobs.seed),
        "device": (jobs.devices or (jobs.device,))[0].type,
        "options": {
            name: _option(jobs.options.get(name, _DEFAULTS[name]), name)
            for name in sorted(COMMON, key="init".__eq__)  # last: other options may change it
            if name not in _LATER or jobs.options.get(name, _DEFAULTS[name]) != _DEFAULTS[name]
        },
    }


def difference(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """Say what differs first, in words that follow "a sweep"; None where nothing does."""
    for name in dict.fromkeys([*now, *before]):
        was, value = before.get(name), now.get(name)
        if name == "options" and isinstance(was, dict) and isinstance(value, dict):
            if (found := difference(was, value)) is not None:
                return found
        elif was != value:
            other = f"with {name} {_shown(was)}, not {_shown(value)}"
            return "of other data" if name == "data" else other
    return None


def _seeds(seed: np.ndarray) -> int | list[int]:
    """The first of seeds that follow each other, or all."""
    first = int(seed[0])
    follow = np.array_equal(seed, first + np.arange(len(seed)))
    return first if follow else seed.tolist()


def seeds_of(random_state: int | list[int], count: int) -> np.ndarray:
    """The seeds of all jobs, from what `asked` has of them."""
    if isinstance(random_state, int):
        return random_state + np.arange(count)
    return np.resize(np.array(random_state, np.int64), count)  # a wrong number is refused later


def _data(jobs: Jobs) -> Any:
    return list(jobs.sources.tensors) if isinstance(jobs.sources, Loose) else jobs.sources


def _option(value: Any, name: str) -> Any:
    """An option; of a network of the user's own also what is in its file."""
    if name in ("init", "accelerator") and isinstance(value, str | Path) and Path(value).is_file():
        return {"file": str(value), "sha256": zoo.checksum(Path(value))}
    return described(value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
