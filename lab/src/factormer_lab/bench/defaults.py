"""Time default calls beside scikit-learn's, and see what calls that say CONVERGED leave to gain.

    make bench NAME=defaults                 # NMF(r, random_state=0).fit_transform(V), in turn
    make bench NAME=defaults ARGS="--ends"   # ends of calls beside their continuations

Both packages are called in turn, the shortest of REPEATS calls counts, and a call contains
everything from its start to the finished factors. The excess is that of our error over theirs.

With --ends every matrix is factorized from four starts, by `NMF` and by `factorize_many`. Where a
call ends CONVERGED, 2 000 more iterations from its factors show what was left to gain. Large
matrices are thinned out to some of their rows.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import sklearn.decomposition
from sklearn.exceptions import ConvergenceWarning

from factormer import NMF, Status, factorize, factorize_many
from factormer_lab.bench import stop
from factormer_lab.bench.cases import RACE, Case, find
from factormer_lab.bench.errors import EXACT

REPEATS, SECONDS = 3, 8.0  # calls of each, and seconds after which a case has had enough of them
MORE = 2000  # iterations of a continuation
STARTS: dict[str, dict[str, Any]] = {
    "auto": {"random_state": 0},
    "random": {"init": "random", "random_state": 1},
    "nndsvda": {"init": "nndsvda", "random_state": 0},
    "rotated": {"init": "rotated", "random_state": 2},
}


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help="name:rank; those of the race, or of `stop`")
    parser.add_argument("--ends", action="store_true", help="what is left to gain at the ends")
    asked = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    if asked.ends:
        ends(stop.cases(asked.cases))
    else:
        calls(find(asked.cases or RACE, absent=False))


def calls(cases: list[Case]) -> None:
    """Print a row for each case, and the geometric mean of the ratios."""
    print("| case | ours s | theirs s | theirs/ours | our excess % | iterations | status |")
    print("|---|--:|--:|--:|--:|--:|---|")
    ratios, excesses = [], []
    for case in cases:
        V, name = case.load(), f"{case.name}:{case.rank}"
        ours = NMF(case.rank, random_state=0)
        their_class: Any = sklearn.decomposition.NMF
        theirs = their_class(case.rank, random_state=0)
        mine, other = _in_turn(partial(ours.fit_transform, V), partial(theirs.fit_transform, V))
        least = EXACT * math.sqrt(math.prod(V.shape))
        errors = [max(est.reconstruction_err_, least) for est in (ours, theirs)]
        excesses.append(100 * (errors[0] / errors[1] - 1))
        ratios.append(other / mine)
        iterations = f"{ours.n_iter_}, {theirs.n_iter_}"
        row = (name, f"{mine:.4g}", f"{other:.4g}", f"{ratios[-1]:.2f}", f"{excesses[-1]:+.3f}")
        print(f"| {' | '.join((*row, iterations, ours.status_.name))} |", flush=True)
    print(
        f"\ngeometric mean {statistics.geometric_mean(ratios):.2f}, least {min(ratios):.2f}; "
        f"largest excess {max(excesses):+.3f} %"
    )


def _in_turn(ours: Callable[[], Any], theirs: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds of the shortest call of each."""
    least, begun = [math.inf, math.inf], time.perf_counter()
    for _ in range(REPEATS * 4):
        for k, call in enumerate((ours, theirs)):
            tick = time.perf_counter()
            call()
            least[k] = min(least[k], time.perf_counter() - tick)
        if time.perf_counter() - begun > SECONDS:
            break
    return least[0], least[1]


def ends(cases: list[Case]) -> None:
    """Print what every call left to gain, and how many left more than .1 % and .5 %."""
    print("| case | start | by | iterations | left % |\n|---|---|---|--:|--:|")
    gains, unfinished = [], 0
    for case in cases:
        V = stop.thinned(case.load())
        for start, by, result in _results(V, case.rank):
            about = f"| {case.name}:{case.rank} | {start} | {by} | {result.n_iter} |"
            if result.status is not Status.CONVERGED:
                unfinished += 1
                print(about, result.status.name, "|")
                continue
            given = {"init": "custom", "W": result.W, "H": result.H, "tol": 0, "max_iter": MORE}
            later = factorize(V, case.rank, **given)
            error, end = (max(float(one.rmse), EXACT) for one in (result, later))
            gains.append(100 * (error / end - 1))
            print(about, f"{gains[-1]:.3f} |", flush=True)
    for share in (0.1, 0.5):
        within = sum(gain <= share for gain in gains)
        print(f"within {share} %: {within} of {len(gains)}, {100 * within / len(gains):.1f} %")
    print(f"most {max(gains):.3f} %, median {np.median(gains):.4f} %")
    print(f"{unfinished} calls came to the limit of iterations")


def _results(V: Any, rank: int) -> Iterator[tuple[str, str, Any]]:
    for name, options in STARTS.items():
        yield name, "NMF", NMF(rank, **options).fit(V).result_
    for k, result in enumerate(factorize_many(V, [rank], n_init=2, random_state=3)):
        yield f"random {3 + k}", "factorize_many", result


if __name__ == "__main__":
    main()
