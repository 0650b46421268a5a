"""The kernels of a GPU's chip, compiled for a processor: iterations are the twins'.

So what they compute is tested where there is no GPU; how fast they are is not.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import factormer.kernels
from factormer import Status, factorize
from factormer.data.intake import as_matrix
from factormer.kernels.core import rules
from factormer.kernels.rules import LOOK_EVERY, SHARE
from factormer.run.choose import choose
from factormer.run.execute import starting_factors
from factormer.run.request import Request
from factormer.solvers.hals import HALS
from tests.many.test_factorize_many import problem

CHIP = Path(factormer.kernels.__file__).parent / "chip"


class Task(ctypes.Structure):
    """As in `chip/common.cu`."""

    _fields_ = [
        *[(name, ctypes.c_void_p) for name in ("V", "transposed")],
        *[(name, ctypes.c_longlong) for name in ("w", "h", "far")],
        ("seed", ctypes.c_ulonglong),
        *[(name, ctypes.c_longlong) for name in ("m", "n", "r", "sweeps_h", "sweeps_w")],
    ]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Kernels by their rank, threads, and what else they are for."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no compiler of C++ was found")
    folder, made = tmp_path_factory.mktemp("chip"), dict[Any, ctypes.CDLL]()

    def library(
        rank: int, threads: int, *, far: bool = False, kullback: bool = False
    ) -> ctypes.CDLL:
        key = (rank, threads, far, kullback)
        if key not in made:
            sizes = f"constexpr int R = {rank}, T = {threads};\n"
            flags = f"constexpr bool FAR = {int(far)}, KULLBACK = {int(kullback)};\n"
            names = ("common", "squares", "kullback", "run")
            here = Path(__file__).parent
            paths = [here / "processor.h", *(CHIP / f"{n}.cu" for n in names), here / "driver.cu"]
            head = (
                "#include <cstdint>\n"
                + rules()
                + f"constexpr float SHARE = {SHARE}f;\n"
                + sizes
                + flags
            )
            text = head + "\n".join(path.read_text() for path in paths)
            source = folder / ("_".join(map(str, key)) + ".cpp")
            source.write_text(text)
            target = source.with_suffix(".so")
            options = ["-std=c++20", "-O0", "-w", "-shared", "-fPIC", "-pthread"]
            subprocess.run([compiler, *options, source, "-o", target], check=True)
            made[key] = ctypes.CDLL(str(target))
        return made[key]

    return library


def task(V: np.ndarray, r: int, seed: int = 7) -> tuple[Task, list[np.ndarray]]:
    """A problem for a kernel, and what must live as long."""
    kept = [np.ascontiguousarray(V, "f4"), np.ascontiguousarray(V.T, "f4")]
    m, n = V.shape
    sweeps = HALS().all_sweeps(np.array([m, n]), np.array([n, m]), np.array([r, r])).tolist()
    addresses = [array.ctypes.data for array in kept]
    return Task(*addresses, 0, 0, 0, seed, m, n, r, *sweeps), kept


def at(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def errors(V: np.ndarray, W: np.ndarray, H: np.ndarray) -> tuple[float, float]:
    """The root of the mean squared error, and of the mean of twice the divergence."""
    fit = W.astype(float) @ H.astype(float).T
    divergence = V * np.log(V / fit) - V + fit
    return float(np.sqrt(((V - fit) ** 2).mean())), float(np.sqrt(2 * divergence.mean()))


# First Newton steps of the chip are not quite those of a CPU: their ends are compared.
CASES = [
    (6, 32, {}, 8, 1e-5), (16, 64, {}, 8, 1e-5),
    (6, 64, {"far": True}, 8, 1e-5), (8, 32, {"kullback": True}, 60, 1e-3),
]  # fmt: skip


@pytest.mark.parametrize(("rank", "threads", "kind", "n_iter", "rtol"), CASES)
def test_iterations_are_those_of_a_cpu(compiled, rank, threads, kind, n_iter, rtol):
    r, is_kullback = rank - 1, bool(kind.get("kullback"))
    V = problem(threads - 4, threads + 9 if kind.get("far") else threads - 9, r, 1)
    rng = np.random.default_rng(2)
    W, H = (rng.random((rows, r)).astype("f4") for rows in V.shape)
    other: Any = {"loss": "kullback-leibler"} if is_kullback else {"solver": "her"}
    twin = factorize(
        V, r, init="custom", W=W, H=H, tol=0, max_iter=n_iter, engine="reference", **other
    )
    room, outcome = np.zeros(64 * sum(V.shape), "f4"), np.zeros(3, "f4")
    asked, kept = task(V, r)
    compiled(rank, threads, **kind).run(
        ctypes.byref(asked), at(W), at(H), at(room), at(outcome), n_iter, ctypes.c_float(0), 0, 1, 0
    )
    assert kept
    assert outcome[1] == n_iter
    assert W.min() >= 0
    assert H.min() >= 0
    np.testing.assert_allclose(outcome[0], twin.rmse, rtol=rtol)
    np.testing.assert_allclose(outcome[0], errors(V, W, H)[is_kullback], rtol=1e-4)


def test_a_run_ends_where_that_of_a_cpu_does(compiled):
    V = problem(28, 23, 1, 4).astype("f4")
    rng = np.random.default_rng(2)
    W, H = (rng.random((rows, 1)).astype("f4") for rows in V.shape)
    alone = factorize(V, 1, init="custom", W=W, H=H, tol=1e-12, max_iter=400, solver="her")
    outcome, (asked, kept) = np.zeros(3, "f4"), task(V, 1)
    compiled(6, 32).run(
        ctypes.byref(asked), at(W), at(H), at(np.zeros(1, "f4")), at(outcome), 400,
        ctypes.c_float(1e-12), 0, 1, 0,
    )  # fmt: skip
    assert kept
    assert alone.status is Status.CONVERGED
    assert outcome[2] == 0
    assert abs(outcome[1] - alone.n_iter) <= LOOK_EVERY
    np.testing.assert_allclose(outcome[0], alone.rmse, rtol=1e-5)


def test_a_start_for_counts_is_that_of_a_cpu(compiled):
    V, r = np.random.default_rng(3).poisson(problem(28, 23, 5, 5)).astype("f4"), 5
    request = Request.of(as_matrix(V), r, loss="kullback-leibler", random_state=7)
    x = starting_factors(choose(request))
    outcome, (asked, kept) = np.zeros(3, "f4"), task(V, r, seed=7)
    W, H = (np.zeros((rows, r), "f4") for rows in V.shape)
    compiled(6, 32, kullback=True).run(
        ctypes.byref(asked), at(W), at(H), at(np.zeros(1, "f4")), at(outcome), 0,
        ctypes.c_float(0), 0, 0, 20,
    )  # fmt: skip
    assert kept
    np.testing.assert_allclose(W @ H.T, (x.W @ x.H.mT).numpy(), rtol=1e-2, atol=1e-3 * V.mean())
