"""Counts and failures on disk, to continue from, and the table that they make."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from tests.fuzz.judge import cluster
from tests.fuzz.specs import ENTRIES, LOSSES, SOLVERS, WITHOUT_LOSS, Spec

KEPT = 5  # failures of one kind that are kept


class State:
    """All that has been tried: the next batch, inputs by entry × loss × solver, and failures."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "state.json"
        self.next_batch = 0
        self.cells: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.failures: dict[str, dict[str, Any]] = {}
        if self.path.is_file():
            vars(self).update(_read(self.path))

    @property
    def total(self) -> int:
        return sum(self.verdicts.values())

    def add(self, spec: Spec, outcome: dict[str, Any]) -> None:
        """Count an input; keep the specification where it failed."""
        self.cells[" × ".join(cell(spec))] += 1
        self.verdicts[outcome["verdict"]] += 1
        if outcome["verdict"] == "refused":
            self.refusals[cluster(outcome)[6:96]] += 1
        if outcome["verdict"] == "failed":
            name = cluster(outcome)
            kind = self.failures.setdefault(name, {"times": 0, "examples": []})
            kind["times"] += 1
            examples = sorted([*kind["examples"], [spec, outcome]], key=lambda e: _length(e[0]))
            kind["examples"] = examples[:KEPT]

    def save(self) -> None:
        """Write all of it, whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_suffix(".part")
        told = {k: v for k, v in vars(self).items() if k != "path"}
        beside.write_text(json.dumps(told, ensure_ascii=False, indent=1))
        os.replace(beside, self.path)

    def summary(self) -> str:
        """Inputs by entry × loss × solver, what is empty, and failures, the most frequent first."""
        columns = [*LOSSES]
        lines = [f"{self.total} inputs: {dict(self.verdicts)}", ""]
        lines.append(f"{'entry':16}{'solver':18}" + "".join(f"{name:>18}" for name in columns))
        empty = []
        for entry in ENTRIES:
            for solver in ("-",) if entry in WITHOUT_LOSS else SOLVERS:
                losses = ["-"] if entry in WITHOUT_LOSS else columns
                counts = [self.cells[" × ".join((entry, loss, solver))] for loss in losses]
                empty += [(entry, x, solver) for x, k in zip(losses, counts, strict=True) if not k]
                lines.append(f"{entry:16}{solver:18}" + "".join(f"{k:18}" for k in counts))
        named = "; ".join(" × ".join(where) for where in empty[:20])
        lines += ["", f"empty: {len(empty)}{': ' + named if empty else ''}", ""]
        for kind in sorted(self.failures.values(), key=lambda kind: -kind["times"]):
            spec, outcome = kind["examples"][0]
            what = " ".join(outcome["what"].split())
            lines += [f"{kind['times']:5} × {outcome['claim']}: {what}", f"        {told(spec)}"]
        return "\n".join(lines)


def cell(spec: Spec) -> tuple[str, str, str]:
    """Entry, loss and solver of an input."""
    if spec["entry"] in WITHOUT_LOSS:
        return spec["entry"], "-", "-"
    loss = spec.get("loss", "frobenius")
    return spec["entry"], loss if loss in LOSSES else "other", spec.get("solver", "auto")


def told(spec: Spec) -> str:
    """A specification as one line of JSON."""
    return json.dumps(spec, sort_keys=True)


def keep(spec: Spec, outcome: dict[str, Any], folder: Path) -> Path:
    """Write a failure as a regression case, named after its claim."""
    name = f"{outcome['claim']}-{hashlib.sha256(told(spec).encode()).hexdigest()[:8]}.json"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps({"was": outcome["what"], "spec": spec}, indent=1) + "\n")
    return folder / name


def _length(spec: Spec) -> int:
    """How much there is to a specification: its words, and the size of its data."""
    return len(told(spec)) + spec["data"]["m"] * spec["data"]["n"] // 4


def _read(path: Path) -> dict[str, Any]:
    known = json.loads(path.read_text())
    return {
        k: Counter(v) if k in ("cells", "verdicts", "refusals") else v for k, v in known.items()
    }
