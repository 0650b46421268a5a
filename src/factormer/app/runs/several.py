"""The best of several runs of one rank, each kept as it ends, so that a kill costs little."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from factormer.data.intake import to_numpy
from factormer.data.observations import observe
from factormer.functions import factorize, factorize_many
from factormer.many.jobs import COMMON
from factormer.run.result import Result, Status

_EQUAL = 1e-9  # relative difference of errors below which the earlier run is kept


def best_run(
    V: Any,
    rank: int,
    keywords: dict[str, Any],
    folder: Path,
    ran: Callable[[int, float], object] | None = None,
) -> Result:
    """The run with the least error of `n_init`, of which those in the folder are not made again.

    `ran` is called after each with how many are done and the least error. Interrupted, or out of
    time, it is the best of those that are done; runs that are interrupted before are not counted.
    """
    names = ("mask", "weights", "missing", "device")
    matrix = observe(V, **{name: keywords[name] for name in names})
    done, least, status = 0, math.inf, None
    runs = factorize_many(
        matrix,
        [rank],
        n_init=keywords["n_init"],
        random_state=keywords["random_state"],
        time_limit=keywords["time_limit"],
        folder=folder,
        as_completed=True,
        **{name: keywords[name] for name in COMMON if name in keywords},
    )
    found: dict[int, Result] = {}  # the best, and those that equal it
    try:
        for index, result in runs:
            done += 1
            least = min(least, float(result.error))
            found[index] = result
            found = {k: x for k, x in found.items() if float(x.error) <= least * (1 + _EQUAL)}
            if ran is not None:
                ran(done, least)
    except KeyboardInterrupt:
        if not found:
            raise
        status = Status.INTERRUPTED
    if not found:  # there was no time for one
        once: dict[str, Any] = keywords | {"n_init": 1}
        return factorize(V, rank, **once)
    best = found[min(found)]
    if status is None and done < keywords["n_init"]:
        status = Status.TIME_LIMIT
    return replace(best, status=status or best.status, as_given=to_numpy)
