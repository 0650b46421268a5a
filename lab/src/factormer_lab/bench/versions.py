"""Versions of the package, each installed in an environment of its own, and their processes.

A version is a commit, or the working tree as it is. Its source is laid out, and its environment is
made, in build/compare/NAME, once: the next comparison takes what is there.
"""

from __future__ import annotations

import json
import math
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STAT = Path("/proc/stat")
LAB = Path(__file__).resolve().parents[2]  # where workers find `factormer_lab`
OTHERS = ("lab", "docs", "tests", "changelog.d")  # folders without code of the package


class NoAnswerError(Exception):
    """A version could not carry out a request, or not in time."""


@dataclass(frozen=True)
class Version:
    """An installed version: its name, its interpreter, and a folder for what it compiles."""

    name: str
    python: Path
    cache: Path

    def environment(self, cache: Path | None = None) -> dict[str, str]:
        """Return the variables of its processes, which see no other source and no other cache."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        folder = str(cache or self.cache)
        return kept | {"NUMBA_CACHE_DIR": folder, "XDG_CACHE_HOME": folder}

    def fresh(self, code: str, *arguments: str, empty: bool = False) -> float:
        """Return the number that a new process prints; if `empty`, nothing is compiled for it.

        Where nothing is compiled, neither are modules to bytecode, so that a process finds what the
        first one after an installation finds.
        """
        with tempfile.TemporaryDirectory() as folder:
            variables = self.environment(Path(folder) if empty else None)
            if empty:
                variables["PYTHONPYCACHEPREFIX"] = folder
            command = [str(self.python), "-W", "ignore", "-c", code, *arguments]
            done = subprocess.run(command, env=variables, capture_output=True, text=True)
        if done.returncode:
            raise NoAnswerError(done.stderr.strip().rpartition("\n")[2])
        return float(done.stdout.split()[-1])


class Process:
    """A process of a version that carries out requests, and is stopped between them.

    Stopped processes take no share of the machine, not even by threads that wait in a loop.
    """

    def __init__(self, version: Version) -> None:
        self.version = version
        variables = version.environment()
        paths = filter(None, (str(LAB), variables.get("PYTHONPATH")))
        variables["PYTHONPATH"] = os.pathsep.join(paths)
        self._pipe = subprocess.Popen(
            [str(version.python), "-W", "ignore", "-m", "factormer_lab.bench.worker"],
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, job: dict[str, Any], limit: float, **how: Any) -> dict[str, Any]:
        """Return the answer to a request; raise an error if it takes more than `limit` seconds."""
        stdin, stdout = self._pipe.stdin, self._pipe.stdout
        assert stdin is not None
        assert stdout is not None
        self._pipe.send_signal(signal.SIGCONT)
        try:
            stdin.write(json.dumps({"job": job, **how}) + "\n")
            stdin.flush()
            if not select.select([stdout], [], [], limit)[0]:
                raise NoAnswerError(f"no answer in {limit:.0f} s")
            reply = stdout.readline()
        except BrokenPipeError:
            reply = ""
        if not reply:
            raise NoAnswerError("its process ended")
        self._pipe.send_signal(signal.SIGSTOP)
        told = json.loads(reply)
        if "failed" in told:
            raise NoAnswerError(told["failed"])
        return told

    def used(self) -> float:
        """Return the processor seconds it has taken; nan where the system does not tell."""
        if not STAT.exists():
            return math.nan
        fields = Path(f"/proc/{self._pipe.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """End the process, whatever it is at."""
        with suppress(BrokenPipeError), self._pipe:  # what it has not read is lost
            self._pipe.kill()


def busy() -> float:
    """Return the processor seconds of all processes since the machine started, nan if not told."""
    if not STAT.exists():
        return math.nan
    fields = STAT.read_text(encoding="ascii").partition("\n")[0].split()[1:9]
    user, nice, system, _, _, irq, soft, steal = map(int, fields)
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def git(*arguments: str, cwd: Path, **variables: str) -> str:
    """Return what git prints."""
    command = ["git", *arguments]
    environment = os.environ | variables
    done = subprocess.run(
        command, cwd=cwd, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout.strip()


def named(revision: str | None, root: Path) -> tuple[str, str]:
    """Return the name of a version, and the tree in git that holds its source.

    A commit is named by its first ten digits. The working tree, which `None` stands for, is named
    by its commit where they do not differ in the package, and else by the tree that it would be.
    """
    if revision:
        commit = git("rev-parse", "--verify", f"{revision}^{{commit}}", cwd=root)
        return commit[:10], commit
    excluded = [f":!{folder}" for folder in OTHERS]
    if not git("status", "--porcelain", "--", ".", *excluded, cwd=root):
        return named("HEAD", root)
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": f"{folder}/index"}
        git("add", "--all", "--", ".", *excluded, cwd=root, **index)
        tree = git("write-tree", cwd=root, **index)
    return f"tree-{tree[:10]}", tree


def install(revision: str | None, root: Path, into: Path) -> Version:
    """Install a version, unless it is there: the package, and with it what it constrains."""
    name, tree = named(revision, root)
    folder = into / name
    version = Version(name, folder / "venv" / "bin" / "python", folder / "cache")
    stamp = folder / "installed.stamp"
    if stamp.exists():
        return version
    print(f"Installing {name} in {folder}", flush=True)
    begun = time.perf_counter()
    shutil.rmtree(folder, ignore_errors=True)
    source = folder / "source"
    source.mkdir(parents=True)
    archive = folder / "source.tar"
    git("archive", "--output", str(archive), tree, cwd=root)
    subprocess.run(["tar", "-xf", str(archive), "-C", str(source)], check=True)
    archive.unlink()
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    pip = [str(version.python), "-m", "pip", "install", "--quiet", "-c", "constraints.txt"]
    dependencies = tomllib.loads((source / "pyproject.toml").read_text())["project"]["dependencies"]
    # Torch comes first and alone, so that it comes from the constraints.
    torch = [["torch"]] if any(one.startswith("torch") for one in dependencies) else []
    variables = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    variables["FACTORMER_NO_CORE"] = "0"  # a core that cannot be compiled is an error
    for what in (*torch, ["."]):
        subprocess.run([*pip, *what], cwd=source, env=variables, check=True)
    stamp.touch()
    print(f"Installed {name} in {time.perf_counter() - begun:.0f} s", flush=True)
    return version
