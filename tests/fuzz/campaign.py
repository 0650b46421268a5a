"""Several workers at once, one state, until the time is up."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.fuzz.judge import judge
from tests.fuzz.pool import Worker
from tests.fuzz.specs import drawn
from tests.fuzz.state import State

BATCH = 100


def run(task: Any) -> Any:
    """The tasks of workers: draw a batch, or judge a specification."""
    kind, value = task
    return drawn(value, BATCH) if kind == "draw" else judge(value)


class Campaign:
    """Several workers, one state, until the time is up."""

    def __init__(self, state: State, *, jobs: int, seconds: float, cap: float) -> None:
        self.state, self.jobs, self.cap = state, jobs, cap
        self.ends = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._began, self._before, self._failed = time.monotonic(), state.total, []

    def run(self) -> None:
        """Try inputs; Ctrl-C ends it, and the state is kept."""
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self.jobs)]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                time.sleep(2)
                with self._lock:
                    self.state.save()
                    self._progress()
        except KeyboardInterrupt:
            self.ends = 0.0
            say("\nending: the state is kept")
        for thread in threads:
            thread.join(self.cap)
        self.state.save()
        if self._failed:
            raise SystemExit(self._failed[0])

    def _work(self) -> None:
        worker = Worker(run, cap=self.cap)
        try:
            while time.monotonic() < self.ends:
                with self._lock:
                    batch, self.state.next_batch = self.state.next_batch, self.state.next_batch + 1
                for spec in worker.ask(("draw", batch)):
                    outcome = worker.ask(("judge", spec))
                    with self._lock:
                        self.state.add(spec, outcome)
                    if time.monotonic() >= self.ends:
                        break
        except Exception as error:
            self._failed.append(f"a worker ended: {error!r}")
        finally:
            worker.stop()

    def _progress(self) -> None:
        state, past = self.state, time.monotonic() - self._began
        pace = (state.total - self._before) / past
        left = max(0.0, self.ends - time.monotonic())
        say(
            f"\r{state.total} inputs, {pace:.1f} a second, {state.verdicts['failed']} failures of "
            f"{len(state.failures)} kinds, {left:.0f} s left ",
            end="",
        )


def say(text: str, end: str = "\n") -> None:
    sys.stderr.write(text + end)
    sys.stderr.flush()


def replayed(paths: list[Path], cap: float) -> int:
    """Judge kept cases, each in a worker; the number that fail."""
    worker, failures = Worker(run, cap=cap), 0
    for path in paths:
        stored = json.loads(path.read_text())
        outcome = worker.ask(("judge", stored.get("spec", stored)))
        failures += outcome["verdict"] == "failed"
        say(f"{path.name}: {outcome}")
    worker.stop()
    return failures


def judged_again(state: State, cap: float) -> int:
    """Judge each kept failure again, and forget those kinds that are mended."""
    worker = Worker(run, cap=cap)
    for name, kind in list(state.failures.items()):
        left = []
        for spec, _ in kind["examples"]:
            outcome = worker.ask(("judge", spec))
            left += [[spec, outcome]] if outcome["verdict"] == "failed" else []
        kind["examples"] = left
        if not left:
            del state.failures[name]
    worker.stop()
    state.save()
    say(state.summary())
    return int(bool(state.failures))
