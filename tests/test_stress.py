"""Processes, threads and signals: the same answer, or none; never a hang, nothing half-written."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import joblib
import numpy as np
import pytest
import torch

from factormer import NMF, Status, factorize
from tests.signals import interrupted_after

V = np.random.default_rng(0).random((40, 30))
FORKED = """
import multiprocessing, os
import numpy as np, torch
from factormer import NMF, factorize

torch.set_num_threads(2)
V = np.random.default_rng(0).random((2000, 1500))

def work():
    model = NMF(4, max_iter=2, tol=0, random_state=0).fit(V)
    model.inverse_transform(model.transform(V))
    return factorize(V, 4, max_iter=2, tol=0).rmse

before = work()
child = os.fork()
if not child:
    os._exit(0 if abs(work() - before) < 1e-9 else 3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
ENDLESS = """
import numpy as np
from factormer import NMF, factorize

V = np.random.default_rng(0).random((300, 200))
print("begun", flush=True)
result = factorize(V, 8, tol=0, max_iter=10**8)
print(result.status.name, bool(np.isfinite(result.W).all()))
"""


def rmse(_: Any = None) -> float:
    return float(factorize(V, 3, max_iter=20, tol=0.0).rmse)


def run(code: str, **options: Any) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", code], **pipes, **options)


def test_a_forked_process_goes_on():
    """Torch's own threads do not survive a fork: a parent that had started them would hang it."""
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    process = run(FORKED, env=environment, start_new_session=True)
    try:
        said, errors = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert said == "0\n", errors


def test_threads_do_not_disturb_each_other(two_threads):
    expected = rmse()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(rmse, range(12)))
    assert torch.get_num_threads() == 2
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["threading", "loky", "multiprocessing"])
def test_joblib(backend):
    with joblib.parallel_config(backend):
        found: Any = joblib.Parallel(n_jobs=2)(joblib.delayed(rmse)(i) for i in range(4))
    np.testing.assert_allclose(found, rmse(), rtol=1e-9)


@pytest.mark.slow
def test_spawned_processes():
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.map(rmse, range(4))
    np.testing.assert_allclose(found, rmse(), rtol=1e-9)


INTERRUPTS = [
    pytest.param(0, 10),
    *(pytest.param(seed, 50, marks=pytest.mark.slow) for seed in range(1, 5)),
]


@pytest.mark.filterwarnings("ignore:The fit was interrupted")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in a gc hook
@pytest.mark.parametrize("beta_loss", ["frobenius", "kullback-leibler"])
@pytest.mark.parametrize(("seed", "times"), INTERRUPTS)
def test_a_fit_that_is_interrupted_at_any_moment(seed, times, beta_loss, two_threads):
    """It ends at once, in KeyboardInterrupt or with the best so far, and harms no later one."""
    moments = random.Random(seed)
    options: dict[str, Any] = {"beta_loss": beta_loss, "random_state": 0}
    expected = NMF(3, max_iter=5, tol=0.0, **options).fit(V).reconstruction_err_
    for _ in range(times):
        model, begun = NMF(3, max_iter=10**8, tol=0.0, **options), time.monotonic()
        try:
            with interrupted_after(10 ** moments.uniform(-4, -1)):
                model.fit(V)
            assert model.status_ is Status.INTERRUPTED
            assert all(bool((F >= 0).all()) for F in model.result_.factors)
        except KeyboardInterrupt:
            assert not hasattr(model, "components_")
        assert time.monotonic() - begun < 30  # generous
        assert torch.get_num_threads() == 2
    again = NMF(3, max_iter=5, tol=0.0, **options).fit(V).reconstruction_err_
    assert again == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_an_interrupted_run_gives_the_best_so_far(seed):
    process = run(ENDLESS)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    time.sleep(3 + random.Random(seed).random())
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=30)
    assert said == "INTERRUPTED True\n", errors


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_an_interrupted_sweep_leaves_whole_files(seed, tmp_path):
    np.save(tmp_path / "V.npy", np.random.default_rng(0).random((300, 200)))
    command = ["fit", tmp_path / "V.npy", "--rank", "2..40", "--out", tmp_path / "run"]
    process = subprocess.Popen(
        [sys.executable, "-m", "factormer", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    time.sleep(4 + 3 * random.Random(seed).random())
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert "Traceback" not in said
    for file in tmp_path.rglob("*.npz"):
        with np.load(file) as arrays:
            assert all(np.isfinite(arrays[name]).all() for name in arrays.files)


def test_a_fit_in_a_thread_is_that_of_the_main_one():
    with ThreadPoolExecutor(1) as pool:
        model = pool.submit(NMF(3, random_state=0).fit, V).result()
    expected = NMF(3, random_state=0).fit(V)
    np.testing.assert_allclose(model.reconstruction_err_, expected.reconstruction_err_, rtol=1e-9)
