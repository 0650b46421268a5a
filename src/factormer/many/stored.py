"""Results on disk: a piece is an .npz file of plain arrays, whose checksum is checked on reading.

Numbers come back bit for bit: factors, errors, seconds, and the plan in words.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from factormer.data.digest import checksum
from factormer.data.factors import Factors
from factormer.data.files import check_place, replacing
from factormer.many.jobs import Jobs
from factormer.many.results import Summaries
from factormer.run.plan import Explanation
from factormer.run.result import Result, Status
from factormer.run.trace import Row, Trace, half_square

_log = logging.getLogger(__name__)
_TYPES = (np.float32, np.float64)
_NAMES = (
    "index", "shape", "types", "status", "error", "entries", "plan", "plans",
    "W", "H", "steps", "rmse", "seconds",
)  # fmt: skip
_LATER = ("misfit",)  # that the first files do not have


@dataclass(frozen=True, eq=False)
class Stored:
    """Jobs whose results were read from a file: a batch like those that were just computed."""

    jobs: Jobs
    arrays: Mapping[str, np.ndarray]

    @property
    def indices(self) -> np.ndarray:
        """Which jobs."""
        return self.arrays["index"]

    @cached_property
    def _ends(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return where W, H and the trace of each end among all."""
        m, n, r = self.arrays["shape"].T
        return np.cumsum(m * r), np.cumsum(n * r), np.cumsum(self.arrays["steps"])

    @cached_property
    def _plans(self) -> list[Explanation | None]:
        told = json.loads(self.arrays["plans"].tobytes())
        return [None if p is None else _explained(*p) for p in told]

    def summaries(self) -> Summaries:
        """The numbers of each."""
        a = self.arrays
        misfit = a.get("misfit", np.full(len(a["error"]), np.nan))
        rmse, loss = (
            np.where(np.isnan(misfit), a["error"], misfit),
            half_square(a["error"], a["entries"]),
        )
        return Summaries(rmse, loss, a["steps"] - 1, a["status"].astype(object))

    def result(self, place: int) -> Result:
        """One of the results."""
        a, (m, n, r) = self.arrays, (int(size) for size in self.arrays["shape"][place])
        w, h, t = (int(ends[place]) for ends in self._ends)
        of_factors, of_trace, of_error = (_TYPES[k] for k in a["types"][place])
        problem = int(self.jobs.problem[self.indices[place]])
        device, steps = _device(self.jobs, problem), int(a["steps"][place])
        W, H = (
            torch.tensor(flat.reshape(size, r).astype(of_factors), device=device)
            for flat, size in ((a["W"][w - m * r : w], m), (a["H"][h - n * r : h], n))
        )
        errors = torch.tensor(a["rmse"][t - steps : t].astype(of_trace)).unbind()
        seconds = a["seconds"][t - steps : t].tolist()
        trace = Trace(map(Row, range(steps), seconds, errors))
        trace.entries = a["entries"][place]
        error = torch.tensor(a["error"][place].astype(of_error), device=device)
        status, plan = Status[str(a["status"][place])], self._plans[int(a["plan"][place])]
        trace.measure = "RMSE" if plan is None else plan.measure
        misfit = float(a["misfit"][place]) if "misfit" in a else math.nan
        found = Result(Factors(W, H), status, trace, error, self.jobs.as_given[problem], plan)
        return (
            found
            if math.isnan(misfit)
            else replace(found, misfit=torch.tensor(misfit, dtype=torch.float64))
        )


def packed(results: Mapping[int, Result]) -> dict[str, np.ndarray]:
    """Results, by the index of their job, as arrays."""
    found = [results[index] for index in sorted(results)]
    factors = [(_plain(x.factors.W), _plain(x.factors.H)) for x in found]
    traces, errors = [x.trace.rmse for x in found], [_plain(x.error) for x in found]
    plans = {x.plan: None for x in found}
    places = {plan: k for k, plan in enumerate(plans)}
    return {
        "index": np.array(sorted(results), np.int64),
        "shape": np.array([(*W.shape, len(H)) for W, H in factors], np.int64)[:, [0, 2, 1]],
        "types": np.array(
            [
                [_TYPES.index(part.dtype) for part in (W, rmse, error)]
                for (W, _), rmse, error in zip(factors, traces, errors, strict=True)
            ],
            np.uint8,
        ),
        "status": np.array([x.status.name for x in found]),
        "error": np.array(errors, np.float64),
        "entries": np.array([float(np.asarray(x.trace.entries)) for x in found]),
        "plan": np.array([places[x.plan] for x in found], np.int64),
        "plans": np.frombuffer(json.dumps(list(plans)).encode(), np.uint8),
        "W": np.concatenate([W.ravel() for W, _ in factors]),
        "H": np.concatenate([H.ravel() for _, H in factors]),
        "steps": np.array([len(x.trace) for x in found], np.int64),
        "rmse": np.concatenate(traces),
        "seconds": np.concatenate([x.trace.seconds for x in found]),
        "misfit": np.array([math.nan if x.misfit is None else float(x.misfit) for x in found]),
    }


def save(path: Path, results: Mapping[int, Result], mark: str) -> None:
    """Write a piece completely, or leave the old one; `mark` says of which sweep it is."""
    arrays = packed(results)
    with replacing(path) as file:
        np.savez(file, seal=_seal(arrays, mark), **arrays)  # pyright: ignore[reportArgumentType]


def load(path: Path, jobs: Jobs, span: range, mark: str) -> Stored | None:
    """A piece with some of the jobs of `span`; None where there is none that is sound."""
    check_place(path)
    try:
        with path.open("rb") as source, np.load(source, allow_pickle=False) as file:
            later = [name for name in _LATER if name in file.files]
            arrays = {name: np.asarray(file[name]) for name in (*_NAMES, *later, "seal")}
        seal = arrays.pop("seal")
        if not np.array_equal(seal, _seal(arrays, mark)):
            raise ValueError("its checksum is wrong, or it is of another sweep")
        if not np.isin(arrays["index"], span).all():
            raise ValueError("it is of other jobs")
    except FileNotFoundError:
        return None
    except PermissionError:
        raise
    except Exception as error:  # of zip, zlib, struct and numpy
        _log.warning("%s is damaged (%s); it is made again", path, error)
        return None
    return Stored(jobs, arrays)


def _seal(arrays: Mapping[str, np.ndarray], mark: str) -> np.ndarray:
    named: list[Any] = [mark]
    for name in sorted(arrays):
        named += [name, arrays[name]]
    return np.frombuffer(bytes.fromhex(checksum(*named)), np.uint8)


def _device(jobs: Jobs, problem: int) -> torch.device:
    V = jobs.sources
    return V[problem].device if isinstance(V, list) else jobs.device


def _plain(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()


def _explained(
    asked: str,
    start: str,
    stages: list[str],
    finish: str,
    measure: str = "RMSE",
    engine: str = "reference",
) -> Explanation:
    """Return the stored explanation of a plan; earlier versions had neither measure nor engine."""
    return Explanation(asked, start, tuple(stages), finish, measure, engine)
