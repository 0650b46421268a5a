"""Run one case with each of its seeds, and record what came of it."""

from __future__ import annotations

import json
import math
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any


def measured(name: str) -> tuple[str, dict[str, Any]]:
    """Run one case with each of its seeds; in a process of its own."""
    from tests.characterise import data  # in the process that works, after its threads are set
    from tests.characterise.cases import CASES, REAL
    from tests.characterise.entries import answered
    from tests.characterise.judge import Answer, Verdict, judged

    (case,) = (case for case in (*CASES, *REAL) if case.name == name)
    given = data.made(case.data, _scratch())
    answers: list[Answer] = []
    verdicts: list[list[Verdict]] = []
    seconds = []
    for seed in range(case.seeds):
        started = time.process_time()
        try:
            each = answered(case, given, seed)
        except Exception as error:  # which is what came of this case
            said = f"{type(error).__name__}: {error}"
            return name, {"error": [], "status": [], "facts": [], "broken": [said]}
        seconds.append(time.process_time() - started)
        answers += each
        verdicts.append([judged(case, given, answer) for answer in each])
    errors = [
        min(part, key=_nan_last)
        for part in zip(*([v.error for v in o] for o in verdicts), strict=True)
    ]
    facts = [json.dumps(answer.facts, sort_keys=True) for answer in answers if answer.facts]
    return name, {
        "error": [None if math.isnan(error) else float(f"{error:.7g}") for error in errors],
        "status": sorted({answer.status for answer in answers if answer.status}),
        "facts": [json.loads(fact) for fact in sorted(set(facts))],
        "broken": sorted({name for one in verdicts for v in one for name in v.broken}),
        "iterations": int(median(answer.iterations for answer in answers)),
        "seconds": round(median(seconds), 3),
        "data": float(f"{given.checksum:.9g}"),
    }


def _nan_last(error: float) -> float:
    return math.inf if math.isnan(error) else error


def _scratch() -> Path:
    """A folder of this process for files of the cases; the system removes it."""
    global _FOLDER
    if _FOLDER is None:
        _FOLDER = tempfile.TemporaryDirectory()
    return Path(_FOLDER.name)


_FOLDER: tempfile.TemporaryDirectory[str] | None = None
