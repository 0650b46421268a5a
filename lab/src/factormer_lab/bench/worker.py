"""Calls of one installed version of factormer, made on demand: the worker of `compare.py`.

The driver runs this module in the environment of each version. It reads one request a line from the
standard input, and answers each by one line on the standard output, both in JSON:

    {"job": JOB, "repeat": 5, "warm": true, "judge": false}
    {"seconds": 0.0123, "error": null, "iterations": null}

It calls `repeat` times, after one call off the clock if `warm`, and answers the median seconds of
a call; with `judge`, it also answers the error of the last call and its iterations. A JOB is a
dictionary with its "kind", one of those in `KINDS`, and the arguments of that function. Beside the
installed package, whose public names it uses alone, the module needs nothing but `errors`.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse

import factormer
from factormer_lab.bench.errors import ERRORS, rmse

Judged = tuple[float, float | None]  # the error, and the iterations where they are known
Prepared = tuple[Callable[[], Any], Callable[[Any], Judged]]  # the timed call, and its judge


@cache
def matrix(path: str) -> Any:
    """Return the matrix in a file, a dense array (.npy) or a sparse matrix (.npz)."""
    return np.load(path) if path.endswith(".npy") else scipy.sparse.load_npz(path)


def fit(file: str, rank: int, **options: Any) -> Prepared:
    """Prepare `NMF(rank, **options).fit_transform(V)`."""
    V = matrix(file)
    error = ERRORS[options.get("beta_loss", "frobenius")]

    def call() -> Any:
        model = factormer.NMF(rank, **options)
        return model.fit_transform(V), model

    def judge(found: Any) -> Judged:
        W, model = found
        return error(V, W, model.components_.T), int(model.n_iter_)

    return call, judge


def mean_error(results: Sequence[Any], Vs: Sequence[Any]) -> Judged:
    """Return the geometric mean of the errors, and the mean of the iterations."""
    errors = [rmse(V, one.W, one.H) for one, V in zip(results, Vs, strict=True)]
    iterations = statistics.fmean(int(one.n_iter) for one in results)
    return math.exp(statistics.fmean(map(math.log, errors))), iterations


def many(file: str, **options: Any) -> Prepared:
    """Prepare `factorize_many` of problems, which lie side by side in the matrix of a file."""
    with np.load(file) as stored:
        Vs = [np.ascontiguousarray(V) for V in np.split(stored["V"], stored["ends"], axis=1)]
        ranks = stored["ranks"].tolist()

    def call() -> Any:
        results = list(factormer.factorize_many(Vs, ranks, **options))
        return [(one.W, one.H) for one in results] and results

    return call, lambda results: mean_error(results, Vs)


def replicates(file: str, rank: int, count: int, **options: Any) -> Prepared:
    """Prepare `factorize_many` of so many runs from random starts on one matrix."""
    V = matrix(file)
    known = inspect.signature(factormer.factorize_many).parameters
    runs: dict[str, Any] = {"n_runs" if "n_runs" in known else "n_init": count}

    def call() -> Any:
        results = list(factormer.factorize_many(V, [rank], **runs, **options))
        return [(one.W, one.H) for one in results] and results

    return call, lambda results: mean_error(results, [V] * len(results))


def transform(file: str, components: str) -> Prepared:
    """Prepare `transform` of a matrix on given components."""
    V, parts = matrix(file), np.load(components)
    model = factormer.NMF(len(parts), fixed_components=parts).fit(parts)
    return (lambda: model.transform(V)), lambda W: (rmse(V, W, parts.T), None)


KINDS = {"fit": fit, "many": many, "replicates": replicates, "transform": transform}


@cache
def prepared(job: str) -> Prepared:
    """Return what a job, as JSON, times and how it is judged; the data are read only once."""
    asked = json.loads(job)
    return KINDS[asked.pop("kind")](**asked)


def answer(job: dict[str, Any], repeat: int, warm: bool, judge: bool) -> dict[str, Any]:
    """Carry out a request."""
    call, judged = prepared(json.dumps(job))
    found = call() if warm else None
    times = []
    for _ in range(repeat):
        begun = time.perf_counter()
        found = call()
        times.append(time.perf_counter() - begun)
    error, iterations = judged(found) if judge else (None, None)
    return {"seconds": statistics.median(times), "error": error, "iterations": iterations}


def main() -> None:
    """Answer requests until there are no more; what libraries print goes to the standard error."""
    warnings.simplefilter("ignore")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            reply = answer(**json.loads(line))
        except Exception as error:
            reply = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
