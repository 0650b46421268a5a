"""Ctrl-C while the command loads is a line and 130; programs that import us keep theirs."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
# A module that stands for all that loads slowly: it interrupts the process that imports it.
SLOW = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
SCRIPT = "import sys\nfrom factormer.app.cli import main\nsys.exit(main())\n"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    (folder / "scipy.py").write_text(SLOW)
    (folder / "factormer").write_text(SCRIPT)
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(SOURCE)])},
        cwd=folder.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=_listen if os.name == "posix" else None,
    )


def _listen() -> None:
    """Let Ctrl-C through, which a shell ignores for what it runs in its background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")
@pytest.mark.parametrize("command", [["-m", "factormer"], ["SCRIPT"]])
def test_an_interrupt_while_the_command_loads_is_one_line(tmp_path, command):
    folder = tmp_path / "modules"
    folder.mkdir()
    command = [str(folder / "factormer") if word == "SCRIPT" else word for word in command]
    done = run(folder, *command, "models")
    assert (done.returncode, done.stderr) == (130, "factormer: interrupted\n")


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")
def test_a_program_of_others_gets_its_interrupt(tmp_path):
    folder = tmp_path / "modules"
    folder.mkdir()
    done = run(folder, "-c", "import factormer; factormer.factorize")
    assert "KeyboardInterrupt" in done.stderr
    assert done.returncode in (1, -signal.SIGINT)


def test_names_are_loaded_late_and_found_in_the_dictionary_too():
    """Some look names up there, as `eval` does, and set them, as tests do."""
    code = (
        "import sys, factormer\n"
        "assert 'torch' not in sys.modules\n"
        "model = eval('NMF(3)', dict(vars(factormer)))\n"
        "assert type(model) is factormer.NMF\n"
        "factormer.NMF = list\n"
        "assert factormer.NMF is list\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
