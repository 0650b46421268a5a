"""Threads and processes around the core: how many, forks, pools, and the end of the interpreter."""

import ctypes
import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import joblib
import pytest

from tests.core.built import ROOT
from tests.core.lanes import core, one, planted

V = planted(300, 200, 6)


def bits(threads: int = 2):
    return one(V, 6, max_iter=20, threads=threads).bits()


def python(code: str, **environment: str) -> subprocess.CompletedProcess:
    """Run a script beside a built core, in a new interpreter."""
    path = os.pathsep.join([str(ROOT), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, **environment}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


CALL = "import threading\nfrom tests.core.lanes import *\nV = planted(300, 200, 6)\n"
WAIT = "import time; time.sleep(0.3)"
ENDLESS = "one(V, 6, max_iter=2**31 - 1, tol=0, threads=2)"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_goes_on_alone():
    expected = bits()
    for _ in range(5):
        if (child := os.fork()) == 0:
            os._exit(0 if bits() == expected else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert bits() == expected


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool_of_processes_finds_the_same(method):
    if method == "fork" and not hasattr(os, "fork"):
        pytest.skip("there is no fork on this system")
    expected = bits()
    with ProcessPoolExecutor(2, mp_context=get_context(method)) as pool:
        assert list(pool.map(bits, [2, 2, 1])) == [expected] * 3


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_joblib_finds_the_same(backend):
    found = joblib.Parallel(n_jobs=2, backend=backend)(joblib.delayed(bits)() for _ in range(4))
    assert found == [bits()] * 4


@pytest.mark.parametrize(
    "code",
    [
        "one(V, 6, threads=2)",
        f"threading.Thread(target=lambda: {ENDLESS}, daemon=True).start()\n" + WAIT,
        "import atexit; atexit.register(lambda: one(V, 6, threads=2)); one(V, 6, threads=2)",
        "import os; one(V, 6, threads=2); os._exit(0)",
    ],
    ids=["after a call", "during a call", "at exit", "at once"],
)
def test_the_interpreter_ends(code):
    done = python(CALL + code)
    assert (done.returncode, done.stderr) == (0, "")


def test_threads_that_sleep_take_no_processor_time():
    bits()
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.05


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinities")
def test_threads_stay_where_they_are_allowed():
    for _ in range(20):
        bits(3)
        time.sleep(0.01)
    tasks = [int(task.name) for task in Path("/proc/self/task").iterdir()]
    for _ in range(1000):  # a thread that has just woken may be on its way to another processor
        if all(os.sched_getaffinity(task) == os.sched_getaffinity(0) for task in tasks):
            return
        time.sleep(0.01)
    raise AssertionError("a thread was left with another affinity")


THREADS = "from tests.core.lanes import core; print(core.threads())"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"FACTORMER_NUM_THREADS": "3"}, 3),
        ({"FACTORMER_NUM_THREADS": "3", "OMP_NUM_THREADS": "1"}, 3),
        ({"OMP_NUM_THREADS": "1"}, 1),
        ({"OMP_NUM_THREADS": "1,2"}, 1),
        ({"FACTORMER_NUM_THREADS": "none", "OMP_NUM_THREADS": "1"}, 1),
        ({"FACTORMER_NUM_THREADS": "-4", "OMP_NUM_THREADS": "1"}, 1),
    ],
)
def test_the_environment_says_how_many_threads(environment, expected):
    for name in ("FACTORMER_NUM_THREADS", "OMP_NUM_THREADS"):
        environment.setdefault(name, "")
    done = python(THREADS, **environment)
    assert (done.stdout.strip(), done.stderr) == (str(expected), "")


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinities")
def test_the_processors_allowed_bound_the_threads():
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n" + THREADS
    assert python(code, FACTORMER_NUM_THREADS="", OMP_NUM_THREADS="64").stdout.strip() == "1"


def test_a_control_group_bounds_the_threads(tmp_path):
    def write(name, text):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    write("two", "0::/a/b\n")
    assert core.quota(str(tmp_path), "/two") == 0
    write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n")
    assert core.quota(str(tmp_path), "/two") == 0
    write("sys/fs/cgroup/a/cpu.max", "150000 100000\n")
    assert core.quota(str(tmp_path), "/two") == 1.5
    write("one", "3:cpu,cpuacct:/c\n1:memory:/d\n")
    write("sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "50000\n")
    write("sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n")
    assert core.quota(str(tmp_path), "/one") == 0.5


def test_a_number_of_threads_that_is_set_counts_until_it_is_the_environments():
    library = ctypes.CDLL(core.__file__)
    before = core.threads()
    core.set_threads(before + 1)
    assert library.factormer_get_num_threads() == core.threads() == before + 1
    core.set_threads(10**6)
    assert core.threads() == 256
    for count in (-1, 0, before):
        core.set_threads(before + 1)
        core.set_threads(count)
        assert core.threads() == before
    back = "core.set_threads(core.threads() + 1); core.set_threads(core.threads() - 1)"
    again = "import os; os.environ['FACTORMER_NUM_THREADS'] = '7'; print(core.threads())"
    done = python(f"from tests.core.lanes import core; {back}; {again}", FACTORMER_NUM_THREADS="3")
    assert done.stdout.strip() == "7"


def test_the_environment_chooses_the_instruction_set():
    for name in core.isas():
        done = python("from tests.core.lanes import core; print(core.isa())", FACTORMER_ISA=name)
        assert done.stdout.strip() == name
    done = python("from tests.core.lanes import core", FACTORMER_ISA="sse9")
    assert "FACTORMER_ISA is 'sse9'; this machine has" in done.stderr
