"""Workers with a cap on time and memory: one that crashes or hangs costs one input, and says so."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import re
import resource
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Task = Callable[[Any], Any]
TRIES = 15  # times the cap that may go by while something is compiled
COMPILING = re.compile(r"/(numba|llvmlite)/")
START = 300.0  # seconds that a new process may take to import what it needs
_spawn = multiprocessing.get_context("spawn")


class Worker:
    """A process that answers one question after another, and is replaced where it does not.

    If it `warms` up, it factorizes something before the first question, as those that follow do.
    """

    def __init__(self, task: Task, *, cap: float, memory: float = 6.0, warms: bool = True) -> None:
        self.task, self.cap, self.memory, self.warms = task, cap, memory, warms
        self._process: Any = None
        self._before: Any = None
        self._log = Path(tempfile.mkdtemp(prefix="fuzz-")) / "stderr"

    def ask(self, question: Any) -> Any:
        """The answer, or {"verdict": "failed", …} where the process ended or took too long.

        The time in which something is compiled, once on each machine, does not count. A crash may
        be the doing of an earlier question that broke the memory: alone, this one is asked again.
        """
        before, self._before = self._before, question
        answer = self._ask(question)
        if isinstance(answer, dict) and answer.get("claim") == "no_input_crashes":
            alone = self._ask(question)
            if not (isinstance(alone, dict) and alone.get("claim") == "no_input_crashes"):
                answer["what"] += f"; not alone, perhaps by the one before: {before}"
        return answer

    def _ask(self, question: Any) -> Any:
        if self._process is None:
            self._start()
        try:
            self._ours.send(question)
            where = ""
            for _ in range(TRIES):
                if self._ours.poll(self.cap):
                    return self._ours.recv()
                where = self._where_now()
                if not COMPILING.search(self._log.read_text(errors="replace")):
                    break
            self.stop()
            return _failed("every_input_ends", f"more than {self.cap:g} s, in {where}")
        except (EOFError, BrokenPipeError, ConnectionResetError):
            code = self._ended()
            name = signal.Signals(-code).name if code and code < 0 else f"exit code {code}"
            return _failed("no_input_crashes", f"{name}, in {self._where()}")

    def _ended(self) -> int | None:
        self._process.join(10)
        code = self._process.exitcode
        self.stop()
        return code

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None

    def _start(self) -> None:
        self._log.write_text("")
        self._ours, theirs = _spawn.Pipe()
        arguments = (theirs, self.task, str(self._log), self.memory, self.warms)
        self._process = _spawn.Process(target=serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        if not self._ours.poll(START) or self._ours.recv() != "ready":
            raise RuntimeError(f"a worker did not start:\n{self._log.read_text()[-2000:]}")

    def _where_now(self) -> str:
        """Say what the process is doing."""
        self._log.write_text("")
        os.kill(self._process.pid, signal.SIGUSR1)
        time.sleep(0.5)
        return self._where()

    def _where(self) -> str:
        """The innermost of our own lines in the trace that a signal left."""
        lines = self._log.read_text(errors="replace").splitlines()
        ours = [line.strip() for line in lines if "/factormer/" in line]
        return ours[0].split("/factormer/")[-1] if ours else " ".join(lines[-3:])[-200:]


def serve(pipe: Any, task: Task, log: str, memory: float, warms: bool) -> None:
    """Answer questions until nobody asks; the main loop of a worker."""
    told = open(log, "a")  # noqa: SIM115  it stays open as long as the process
    os.dup2(told.fileno(), 1)
    os.dup2(told.fileno(), 2)
    faulthandler.enable(told)
    faulthandler.register(signal.SIGUSR1, told, all_threads=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    most = int(memory * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    if warms:
        _warm()
    pipe.send("ready")
    while True:
        try:
            question = pipe.recv()
        except EOFError:
            return
        pipe.send(task(question))


def _warm() -> None:
    """Compile, or load, what most inputs need: the clock is to see their own work alone."""
    import numpy as np

    from factormer import factorize

    V = np.arange(1.0, 13.0).reshape(4, 3)
    for dtype in (np.float64, np.float32):
        for loss in ("frobenius", "kullback-leibler", "itakura-saito"):
            factorize(V.astype(dtype), 2, loss=loss, max_iter=10)
            factorize(V.astype(dtype), 2, loss=loss, weights=V, max_iter=10)
            factorize(V.astype(dtype), 2, loss=loss, solver="ao-admm", max_iter=2)


def _failed(claim: str, what: str) -> dict[str, Any]:
    return {"verdict": "failed", "claim": claim, "what": what}
