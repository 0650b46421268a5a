"""The memory limit is kept: anonymous memory of a process of its own, above what it has anyway."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

LIMIT = 3e7
SLACK = 1.5e7  # of Python and of the allocator, which do not depend on V

# The first fit compiles and loads what is needed; then memory that is free is given back.
FIT = """
import ctypes, gc, json, sys, threading
import numpy as np
from contextlib import suppress
from factormer import factorize

def anonymous():
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("RssAnon")))

def fit():
    V = np.load(sys.argv[1], mmap_mode="r")
    return factorize(V, 5, memory_limit=float(sys.argv[2]), tol=0, max_iter=8)

fit()
gc.collect()
with suppress(OSError, AttributeError):
    ctypes.CDLL(None).malloc_trim(0)
before = most = anonymous()
done = threading.Event()

def watch():
    global most
    while not done.wait(0.002):
        most = max(most, anonymous())

watcher = threading.Thread(target=watch)
watcher.start()
result = fit()
done.set()
watcher.join()
passes = int(result.trace.passes[-1])
print(json.dumps({"added": max(most, anonymous()) - before, "passes": passes}))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_a_fit_keeps_within_its_limit(tmp_path):
    rng = np.random.default_rng(0)
    W, H = (rng.random((size, 5), dtype=np.float32) for size in (8000, 2500))
    V = W @ H.T
    V += rng.random(V.shape, dtype=np.float32)
    assert V.nbytes > 2.5 * LIMIT
    np.save(tmp_path / "V.npy", V)
    command = [sys.executable, "-c", FIT, str(tmp_path / "V.npy"), str(LIMIT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["passes"] == 5
    assert found["added"] <= LIMIT + SLACK
