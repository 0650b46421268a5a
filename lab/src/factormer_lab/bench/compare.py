"""Compare the speed of two versions of the package, each in an environment of its own.

    make compare OLD=3ceb4b8                             # that commit beside the working tree
    make compare OLD=v0.2 NEW=main CASES="race many"     # some groups of cases
    make compare OLD=3ceb4b8 CASES=race/digits PAIRS=30  # one case, in more pairs

Each version has one process, and they take turns, in pairs of random order; the one that waits is
stopped. A ratio is old/new of the two times of a pair; a row has the median of its ratios and the
interval that holds it with 95 % confidence. A row has PAIRS pairs, and up to four times as many
while its interval is wide. *Slower* is said where the upper end of the interval is below .95, and
where the old version comes to the target but the new one never does.

In the groups `race` and `kl`, each version is called with `max_iter=k, tol=0, random_state=0`, its
start included, where k is the least number of iterations that reaches the target: an error of 1 %
or 0.1 % above the best that either version reached or that is known (`best.json`, made by
`python -m factormer_lab.bench.best`). If a version never comes that near, the times are those to
the same excess over the error that both come to. The group `default` has calls with no option but
the seed, from start to finish.

A comparison that was interrupted is resumed: rows that are finished are kept in build/compare. The
process ends with the status 1 if any row is slower. On a machine with other work, the figures mean
little: the column *others* is the share of the machine that other processes took meanwhile.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from factormer_lab.bench.cases import RACE, find, known
from factormer_lab.bench.environment import CORE, environment
from factormer_lab.bench.errors import EXACT
from factormer_lab.bench.ratios import Ratio, confident, paired
from factormer_lab.bench.versions import NoAnswerError, Process, Version, busy, install

BEST = Path(__file__).with_name("best.json")
KL = (
    *("brca_sbs96:8", "brca_resampled:8", "spectrogram:25", "digits:16", "topics:10"),
    *("audio_piano_spectrogram:15", "bbc_news:10"),
)
KINDS_OF_TARGETS = {"race": RACE, "kl": KL}
GRID = (1, 2, 3, 4, 6, 8, 11, 15, 20, 28, 40, 56, 80, 112, 160, 225, 320, 450, 640, 900)
TARGETS = {"1 %": 1.01, "0.1 %": 1.001}
FLAT = 2e-4  # the gain in an error, as a share of it, below which a longer run has gained nothing
WIDE = 1.06  # the ratio of the ends of an interval from which more pairs are made
FEW = 5  # pairs that are made whatever time they take
TURN = 0.03  # seconds of calls in a turn, at least; a shorter call is made several times
HANGS = 120  # seconds for what a version compiles, beside those of its call
BUSY = 0.3  # of the load average, above which a warning is printed
SIDES = ("old", "new")

IMPORT = """
import sys, time
begun = time.perf_counter()
exec(sys.argv[1])
print(time.perf_counter() - begun)
"""
FIRST = """
import sys, time
import numpy
V = numpy.random.default_rng(0).random((int(sys.argv[1]), int(sys.argv[2])))
begun = time.perf_counter()
import factormer
factormer.NMF(10, random_state=0).fit(V)
print(time.perf_counter() - begun)
"""

Row = dict[str, Any]
Job = dict[str, Any]
Task = Callable[["Comparison"], Iterator[Row]]


class Comparison:
    """Two versions with their processes, and how long a row may take."""

    def __init__(self, versions: list[Version], folder: Path, pairs: int, limit: float) -> None:
        self.versions, self.folder = versions, folder
        self.pairs, self.limit = pairs, limit
        self.best = json.loads(BEST.read_text()) if BEST.exists() else {}
        self._processes = [Process(version) for version in versions]
        self._random = random.Random(0)
        folder.mkdir(parents=True, exist_ok=True)

    def end(self) -> None:
        """End both processes."""
        for process in self._processes:
            process.end()

    def restart(self) -> None:
        """Start both processes anew, after one of them failed."""
        self.end()
        self._processes = [Process(version) for version in self.versions]

    def file(self, case: str) -> str:
        """Return the file with the matrix of a case, which is made the first time."""
        there = [self.folder / f"{case}{suffix}" for suffix in (".npy", ".npz")]
        found = next((path for path in there if path.exists()), None)
        if found is None:
            V = find([case])[0].load()
            found = there[scipy.sparse.issparse(V)]
            _kept(found, V)
        return str(found)

    def ask(self, side: int, job: Job, **how: Any) -> dict[str, Any]:
        """Return the answer of a version to a request."""
        how = {"repeat": 1, "warm": False, "judge": False} | how
        return self._processes[side].ask(job, HANGS + 4 * self.limit, **how)

    def timed(self, jobs: list[Job], **about: Any) -> Row:
        """Return a row: the times of a job for each version, in pairs, with errors of both."""
        told = [self.ask(side, job, warm=True, judge=True) for side, job in enumerate(jobs)]

        def turn(side: int) -> Callable[[], float]:
            seconds = told[side]["seconds"]
            repeat = min(max(math.ceil(TURN / seconds), 1), 100)
            warm = seconds < TURN
            return lambda: self.ask(side, jobs[side], repeat=repeat, warm=warm)["seconds"]

        row = self.interleaved(turn(0), turn(1), **about)
        for name, one in zip(SIDES, told, strict=True):
            row[name] |= {"error": one["error"], "iterations": one["iterations"]}
        return row

    def interleaved(self, old: Callable[[], float], new: Callable[[], float], **about: Any) -> Row:
        """Return a row of the times of two turns, made in pairs, and of what others took."""
        begun, all_before, ours_before = time.monotonic(), busy(), self._used()

        def late(pairs: int) -> bool:
            share = 1.0 if pairs < self.pairs else 0.5  # of the time, for pairs beyond those asked
            return pairs >= FEW and time.monotonic() - begun > share * self.limit

        pairs = paired(
            old,
            new,
            coin=self._random.random,
            least=self.pairs,
            most=4 * self.pairs,
            width=WIDE,
            late=late,
        )
        taken = time.monotonic() - begun
        others = (busy() - all_before - self._used() + ours_before) / taken / (os.cpu_count() or 1)
        times = zip(*pairs, strict=True)
        sides = {
            name: {"seconds": statistics.median(one)}
            for name, one in zip(SIDES, times, strict=True)
        }
        ratio = confident([a / b for a, b in pairs])
        return (
            about
            | sides
            | {
                "ratio": ratio._asdict(),
                "verdict": ratio.verdict,
                "others": max(others, 0.0),
                "load": os.getloadavg()[0],
                "taken": taken,
                "pairs": pairs,
            }
        )

    def _used(self) -> float:
        ours = os.times()
        return sum(ours[:4]) + sum(process.used() for process in self._processes)


class Curve:
    """The error of a version by the number of iterations, as far as it was asked for."""

    def __init__(self, ask: Callable[[int], dict[str, Any]]) -> None:
        self._ask = ask
        self.errors: dict[int, float] = {}
        self.seconds = 0.0  # of the latest call
        self.flat = False  # more iterations gain nothing

    def error(self, k: int) -> float:
        """Return the error after k iterations, which are run only once."""
        if k not in self.errors:
            told = self._ask(k)
            self.errors[k], self.seconds = told["error"], told["seconds"]
            latest = list(self.errors.values())
            self.flat = len(latest) > 3 and min(latest[-3:]) > (1 - FLAT) * min(latest[:-3])
        return self.errors[k]

    @property
    def least(self) -> float:
        """Return the least error so far."""
        return min(self.errors.values(), default=math.inf)

    def fewest(self, target: float) -> int:
        """Return the least iterations that reach a target, to a twentieth, by bisection.

        The target is one that a number of iterations asked for before reaches.
        """
        high = min(k for k, error in self.errors.items() if error <= target)
        low = max((k for k in self.errors if k < high), default=0)
        while high - low > max(1, high // 20):
            middle = (low + high) // 2
            low, high = (low, middle) if self.error(middle) <= target else (middle, high)
        return high


def to_targets(group: str, case: str, **options: Any) -> Task:
    """Return the task of timing a case to each target, in the fewest iterations that reach it."""

    def run(comparison: Comparison) -> Iterator[Row]:
        file, rank = comparison.file(case), int(case.partition(":")[2])
        floor = 0.0 if "beta_loss" in options else EXACT
        stored = comparison.best.get(f"{group}/{case}", {}).get("error", math.inf)

        def job(k: int) -> Job:
            limits = {"max_iter": k, "tol": 0, "random_state": 0}
            return {"kind": "fit", "file": file, "rank": rank, **options, **limits}

        def curve(side: int) -> Curve:
            comparison.ask(side, job(12))  # which may compile
            return Curve(lambda k: comparison.ask(side, job(k), judge=True))

        def best() -> float:
            return max(min(stored, *(one.least for one in curves)), floor)

        curves = [curve(side) for side in range(2)]
        for k in GRID:
            for one in curves:
                near = stored < math.inf and one.least <= min(TARGETS.values()) * best()
                if not one.flat and not near:
                    one.error(k)
            if min(one.seconds for one in curves) > comparison.limit / 8:
                break  # as the calls of both take too long, not by a moment's load on one
        finals = [max(one.least, floor) for one in curves]
        for label, factor in TARGETS.items():
            least = best()
            never = [n for n, one in zip(SIDES, finals, strict=True) if one > factor * least]
            target = factor * (max(finals) if never else least)
            jobs = [job(one.fewest(target)) for one in curves]
            about = {"case": case, "to": label, "never": never, "best": least, "target": target}
            row = comparison.timed(jobs, **about)
            if never == ["new"]:
                row["verdict"] = "slower"
            yield row

    return run


def by_default(case: str) -> Task:
    """Return the task of timing a call with no option but the seed."""

    def run(comparison: Comparison) -> Iterator[Row]:
        rank = int(case.partition(":")[2])
        job = {"kind": "fit", "file": comparison.file(case), "rank": rank, "random_state": 0}
        stored = comparison.best.get(f"race/{case}", {}).get("error")
        row = comparison.timed([job, job], case=case)
        reached = [row[side]["error"] for side in SIDES]
        yield row | {"best": max(min(reached if stored is None else [*reached, stored]), EXACT)}

    return run


def together(count: int) -> Task:
    """Return the task of timing `factorize_many` of problems with about 100 columns each."""

    def run(comparison: Comparison) -> Iterator[Row]:
        path = comparison.folder / f"problems-{count}.npz"
        if not path.exists():
            rng = np.random.default_rng(0)
            ranks, widths = rng.integers(2, 13, count), rng.integers(80, 121, count)
            parts = [
                rng.poisson(20 * rng.gamma(0.5, size=(96, r)) @ rng.gamma(0.5, size=(r, width)))
                for r, width in zip(ranks, widths, strict=True)
            ]
            ends = np.cumsum(widths)[:-1]
            np.savez(path, V=np.hstack(parts).astype(float), ends=ends, ranks=ranks)
        job = {"kind": "many", "file": str(path)}
        yield comparison.timed([job, job], case=f"{count} problems, ranks 2–12")

    return run


def replicates(case: str, count: int) -> Task:
    """Return the task of timing runs from random starts on one matrix."""

    def run(comparison: Comparison) -> Iterator[Row]:
        rank = int(case.partition(":")[2])
        job = {"kind": "replicates", "file": comparison.file(case), "rank": rank, "count": count}
        yield comparison.timed([job, job], case=f"{count} runs of {case}")

    return run


def transform(m: int, n: int, r: int, density: float) -> Task:
    """Return the task of timing `transform` of so many rows on r components."""

    def run(comparison: Comparison) -> Iterator[Row]:
        rng = np.random.default_rng(0)
        parts = rng.exponential(size=(r, n)) * (rng.random((r, n)) > 0.5)
        V: Any = rng.exponential(size=(m, r)) @ parts + 0.1 * rng.random((m, n))
        kind = "dense"
        if density < 1:
            V = scipy.sparse.csr_matrix(V * (rng.random(V.shape) < density))
            kind = "sparse"
        stem = f"transform-{m}-{n}-{r}-{kind}"
        file, components = (comparison.folder / f"{stem}{end}" for end in (".npy", "-parts.npy"))
        file = file.with_suffix(".npz") if density < 1 else file
        _kept(file, V)
        _kept(components, parts)
        job = {"kind": "transform", "file": str(file), "components": str(components)}
        yield comparison.timed([job, job], case=f"{kind} {m}×{n}, rank {r}")

    return run


def anew(case: str, code: str, *arguments: str, empty: bool = False) -> Task:
    """Return the task of timing what a new process does first."""

    def run(comparison: Comparison) -> Iterator[Row]:
        old, new = (
            lambda one=one: one.fresh(code, *arguments, empty=empty) for one in comparison.versions
        )
        for one in (old, new):
            one()  # which fills the caches of the version and of the disk
        yield comparison.interleaved(old, new, case=case)

    return run


def tasks() -> dict[str, Task]:
    """Return every task by its key, which begins with its group."""
    there = known()
    present = [case for case in (*RACE, *KL) if case.partition(":")[0] in there]
    if missing := {*RACE, *KL} - set(present):
        print(f"FACTORMER_DATA names no folder with {', '.join(sorted(missing))}: left out")
    race = [case for case in RACE if case in present]
    made: dict[str, Task] = {f"race/{case}": to_targets("race", case) for case in race}
    made |= {f"default/{case}": by_default(case) for case in race}
    made["many/ragged"] = together(400)
    for case in KL:
        if case in present:
            made[f"kl/{case}"] = to_targets("kl", case, beta_loss="kullback-leibler")
    made["replicates/dense"] = replicates("noisy:10", 20)
    made["replicates/sparse"] = replicates("topics:10", 20)
    for m, r, density in ((1, 10, 1.0), (1000, 10, 1.0), (50_000, 10, 1.0), (20_000, 40, 0.1)):
        made[f"transform/{m}"] = transform(m, 100, r, density)
    made["first/compiled"] = anew("25×25 in a new process", FIRST, "25", "25")
    made["first/middle"] = anew("700×600 in a new process", FIRST, "700", "600")
    made["first/cold"] = anew("25×25, nothing compiled", FIRST, "25", "25", empty=True)
    for line in ("import factormer", "from factormer import NMF"):
        made[f"import/{line}"] = anew(line, IMPORT, line)
    return made


def chosen(every: dict[str, Task], names: list[str]) -> dict[str, Task]:
    """Return the tasks whose keys begin with one of the names; all where there are none."""
    found = {k: v for k, v in every.items() if not names or any(k.startswith(n) for n in names)}
    if unknown := [n for n in names if not any(key.startswith(n) for key in every)]:
        groups = ", ".join(dict.fromkeys(key.partition("/")[0] for key in every))
        raise SystemExit(f"there are no cases {unknown}; groups are {groups}")
    return found


def compare(comparison: Comparison, asked: dict[str, Task], kept: Path) -> dict[str, list[Row]]:
    """Return the rows of each task, and keep them in a file as they are finished."""
    rows: dict[str, list[Row]] = json.loads(kept.read_text()) if kept.exists() else {}
    for key, task in asked.items():
        if key in rows:
            print(f"{key}: kept from before")
            continue
        try:
            rows[key] = list(task(comparison))
        except NoAnswerError as error:
            print(f"{key}: failed: {error}", flush=True)
            rows[key] = [{"case": key, "failed": str(error), "verdict": "failed"}]
            comparison.restart()
        kept.write_text(json.dumps(rows))
        for row in rows[key]:
            print(line(row), flush=True)
    return {key: rows[key] for key in asked}


HEAD = (
    "| case | to | old s | new s | old/new | 95 % | pairs | iterations | excess % | others % | |\n"
    "|---|---|--:|--:|--:|---|--:|---|---|--:|---|"
)


def line(row: Row) -> str:
    """Return a row of the table in markdown."""
    if "failed" in row:
        return f"| {row['case']} | failed: {row['failed']} | | | | | | | | | failed |"
    sides, ratio = [row[name] for name in SIDES], Ratio(**row["ratio"])
    iterations = excess = ""
    if sides[0].get("iterations") is not None:
        iterations = " → ".join(f"{one['iterations']:.3g}" for one in sides)
    if sides[0].get("error") is not None:
        best = row.get("best") or min(one["error"] for one in sides)
        excess = " → ".join(f"{100 * max(one['error'] / best - 1, 0):.2f}" for one in sides)
    to = row.get("to", "")
    if row.get("never"):
        to = f"{' and '.join(row['never'])} never to {to}; to {to} of what both reach"
    return (
        f"| {row['case']} | {to} | {sides[0]['seconds']:.4g} | {sides[1]['seconds']:.4g} "
        f"| {ratio.median:.3f} | {ratio.low:.3f}–{ratio.high:.3f} | {ratio.pairs} | {iterations} "
        f"| {excess} | {100 * row['others']:.0f} | {row['verdict']} |"
    )


def summary(rows: dict[str, list[Row]]) -> str:
    """Return the geometric mean and the worst of the ratios of each group, in markdown."""
    groups: dict[str, list[Row]] = {}
    for key, several in rows.items():
        for row in (row for row in several if "ratio" in row):
            name = " to ".join(filter(None, (key.partition("/")[0], row.get("to"))))
            groups.setdefault(name, []).append(row)
    lines = [
        "| group | rows | old/new, geometric mean | worst | its case |",
        "|---|--:|--:|--:|---|",
    ]
    for name, several in groups.items():
        mean = statistics.geometric_mean(row["ratio"]["median"] for row in several)
        worst = min(several, key=lambda row: row["ratio"]["median"])
        low = worst["ratio"]["median"]
        lines.append(f"| {name} | {len(several)} | {mean:.3f} | {low:.3f} | {worst['case']} |")
    return "\n".join(lines)


def report(rows: dict[str, list[Row]], facts: dict[str, Any]) -> str:
    """Return the whole report in markdown."""
    every = [row for several in rows.values() for row in several]
    slower = [row for row in every if row["verdict"] in ("slower", "failed")]
    verdict = (
        "Slower or failed: "
        + "; ".join(f"{row['case']} {row.get('to', '')}".strip() for row in slower)
        if slower
        else "Nothing is slower."
    )
    few = [row for row in every if "ratio" in row and row["ratio"]["pairs"] < facts["pairs"]]
    notes = f"\n\n{len(few)} rows have fewer pairs than asked, for want of time." if few else ""
    facts_ = "\n".join(f"- {name}: {value}" for name, value in facts.items())
    table = "\n".join([HEAD, *map(line, every)])
    title = f"# {facts['old']['name']} and {facts['new']['name']}"
    return f"{title}\n\n{verdict}{notes}\n\n{summary(rows)}\n\n{table}\n\n{facts_}\n"


def packages(version: Version) -> dict[str, str]:
    """Return the versions of the packages that are installed beside a version."""
    code = (
        "import json, sys; from importlib.metadata import distributions as d; print(json.dumps("
        "{x.name: x.version for x in d() if x.name in sys.argv[1:]}))"
    )
    command = [str(version.python), "-c", code, *CORE]
    done = subprocess.run(
        command, env=version.environment(), capture_output=True, check=True, text=True
    )
    return json.loads(done.stdout)


def _kept(path: Path, V: Any) -> None:
    """Write a matrix, dense or sparse, unless it is there."""
    if not path.exists():
        save = scipy.sparse.save_npz if path.suffix == ".npz" else np.save
        save(path, V)


def main() -> int:
    """Install what is compared, compare, print and write the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("old", help="a commit")
    parser.add_argument("new", nargs="?", help="a commit; the working tree if it is left out")
    parser.add_argument("--cases", nargs="*", default=[], help="groups, or beginnings of cases")
    parser.add_argument("--pairs", type=int, default=15, help="pairs for each row, at least")
    parser.add_argument("--limit", type=float, default=45, help="seconds for the pairs of a row")
    parser.add_argument("--again", action="store_true", help="forget rows that are finished")
    parser.add_argument("--list", action="store_true", help="list the cases, and compare nothing")
    parser.add_argument("--out", type=Path, default=Path("lab/results/compare"), help="folder")
    options = parser.parse_args()
    asked = chosen(tasks(), options.cases)
    if options.list:
        print("\n".join(asked))
        return 0

    root, folder = Path.cwd(), Path.cwd() / "build" / "compare"
    versions = [install(revision, root, folder) for revision in (options.old, options.new)]
    name = f"{versions[0].name}-{versions[1].name}"
    kept = folder / f"{name}.json"
    if options.again:
        kept.unlink(missing_ok=True)
    facts = environment([])
    if (facts["load"] or 0) > BUSY:
        print(f"The machine is busy (load {facts['load']:.1f}): figures will mean little.")
    facts |= {
        "pairs": options.pairs,
        **{
            side: {"name": version.name, "versions": packages(version)}
            for side, version in zip(SIDES, versions, strict=True)
        },
    }
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    comparison = Comparison(versions, folder / "matrices", options.pairs, options.limit)
    print(HEAD)
    try:
        rows = compare(comparison, asked, kept)
    finally:
        comparison.end()
    text = report(rows, facts)
    print(f"\n{text}")
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"{name}.md").write_text(text, encoding="utf-8")
    numbers = json.dumps(facts | {"rows": rows})
    (options.out / f"{name}.json").write_text(numbers + "\n", encoding="utf-8")
    print(f"report and numbers: {options.out / name}.md and .json")
    every = (row for several in rows.values() for row in several)
    return int(any(row["verdict"] in ("slower", "failed") for row in every))


if __name__ == "__main__":
    sys.exit(main())
