"""One matrix with one rank, seed and set of options has one answer, whoever asks.

A way is a means of asking for a factorization, and a case is what is asked; each way meets each
case. A new way is one entry of `WAYS`.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse
import torch

from factormer import NMF, factorize, factorize_many
from factormer.app.read import Axis, Data
from factormer.app.runs import FitOptions, RunFolder, fit
from factormer.data.intake import as_matrix
from factormer.kernels.core import core
from factormer.penalties import L1, L2, Fixed
from factormer.run import plan as plans
from factormer.run.choose import choose
from factormer.run.request import Request
from factormer.run.result import Result

SEED = 7
# Relative differences of factors, and of errors, that only the order of additions makes: in the
# precision of V, or in single precision where a stage before the last has that.
ROUNDING = {np.dtype(np.float64): (1e-6, 1e-7), np.dtype(np.float32): (1e-4, 1e-5)}


class Answer(NamedTuple):
    """A factorization as every way can tell it."""

    W: np.ndarray
    H: np.ndarray
    n_iter: int
    status: str

    @staticmethod
    def of(result: Result) -> "Answer":
        return Answer(result.W, result.H, result.n_iter, result.status.name)


@dataclass(frozen=True)
class Case:
    """A matrix, its rank, and keywords of `factorize`."""

    V: Any
    rank: int
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def plan(self) -> Any:
        return choose(Request.of(as_matrix(self.V), self.rank, **self.options))

    @property
    def dense(self) -> np.ndarray:
        return self.V.toarray() if scipy.sparse.issparse(self.V) else self.V

    @property
    def is_served_by_the_core(self) -> bool:
        return self.plan.way is plans.Way.CORE

    def error(self, answer: Answer) -> float:
        """The relative error of its W Hᵀ."""
        V = self.dense.astype(float)
        return float(np.linalg.norm(answer.W @ answer.H.T - V) / np.linalg.norm(V))


@dataclass(frozen=True)
class Way:
    """A function that asks."""

    ask: Callable[[Case], Answer | None]  # None: it does not serve the case


# Cases


def _planted(m: int, n: int, k: int, seed: int, noise: float = 0.02) -> np.ndarray:
    rng = np.random.default_rng(seed)
    V = rng.gamma(0.5, 1, (m, k)) @ rng.gamma(0.5, 1, (k, n))
    return V + noise * rng.random((m, n))


def _counts(m: int, n: int, k: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).poisson(2 * _planted(m, n, k, seed)).astype(float)


def _sparse(V: np.ndarray, density: float) -> Any:
    kept = np.random.default_rng(0).random(V.shape) < density
    return scipy.sparse.csr_array(V * kept)


KL: dict[str, Any] = {"loss": "kullback-leibler", "max_iter": 40}
CASES = {
    "tiny": Case(_planted(8, 6, 3, 0), 2),
    "small": Case(_planted(60, 40, 5, 1), 5, {"init": "random"}),
    "rank 1": Case(_planted(60, 40, 5, 1), 1),
    "exact": Case(_planted(40, 36, 3, 2, noise=0.0), 3, {"max_iter": 20}),
    "all iterations": Case(
        _planted(60, 40, 5, 1), 5, {"init": "nndsvd", "tol": 0.0, "max_iter": 120}
    ),
    "single precision": Case(_planted(60, 40, 5, 1).astype(np.float32), 5),
    "middle": Case(_planted(120, 150, 10, 3), 10, {"init": "random"}),
    "single precision and rotated": Case(
        _planted(120, 150, 10, 3).astype(np.float32), 10, {"init": "rotated"}
    ),
    "penalties": Case(
        _planted(60, 40, 5, 1), 5, {"regularize_W": L1(0.1), "regularize_H": L2(0.2)}
    ),
    "known columns": Case(
        _planted(60, 40, 5, 1),
        5,
        {"regularize_H": Fixed(_planted(60, 40, 5, 1)[:1].T, np.arange(5) == 2)},
    ),
    "symmetric": Case(_planted(60, 40, 5, 1) @ _planted(60, 40, 5, 1).T, 5, {"symmetric": True}),
    "several starts": Case(_planted(150, 120, 8, 3), 8, {"n_init": 5}),
    "several starts of a sketch": Case(_planted(1000, 300, 10, 5), 8, {"n_init": 3}),
    "high rank": Case(_planted(300, 200, 30, 4), 30, {"init": "nndsvd", "max_iter": 20}),
    "tall": Case(_planted(1000, 300, 20, 5, noise=1.0), 20, {"init": "random", "max_iter": 10}),
    "sketched": Case(_planted(1000, 300, 10, 5), 8, {"max_iter": 60}),
    "sparse and rotated": Case(_sparse(_planted(400, 300, 8, 6), 0.2), 6),
    "sparse and single": Case(_sparse(_planted(200, 100, 5, 6), 0.2).astype(np.float32), 4),
    "sparse": Case(_sparse(_planted(200, 100, 5, 6), 0.2), 4, {"init": "random"}),
    "counts": Case(_counts(60, 40, 4, 7), 4, KL),
    "many counts": Case(_counts(400, 300, 5, 8), 6, KL | {"max_iter": 12}),
    "sparse counts": Case(_sparse(_counts(120, 80, 3, 9), 0.2), 4, KL),
    "multiplicative": Case(_planted(40, 30, 4, 10), 4, {"solver": "mu", "max_iter": 40}),
}


# Ways


def _asked(case: Case, **more: Any) -> Answer:
    return Answer.of(factorize(case.V, case.rank, random_state=SEED, **case.options, **more))


def _estimated(case: Case) -> Answer:
    options = dict(case.options)
    options["beta_loss"] = options.pop("loss", "frobenius")
    model = NMF(case.rank, random_state=SEED, **options)
    W = model.fit_transform(case.V)
    return Answer(W, model.components_.T, model.n_iter_, model.result_.status.name)


def _commanded(case: Case) -> Answer | None:
    if any(name.startswith("regularize") or name == "n_init" for name in case.options):
        return None
    (m, n), options = case.V.shape, FitOptions(seed=SEED, **case.options)
    data = Data(case.V, Axis(m, "row"), Axis(n, "column"), "data", "made up")
    with tempfile.TemporaryDirectory() as name:
        [result] = fit(data, [case.rank], options, Path(name))
        kept = RunFolder(Path(name)).factors(case.rank)
    return Answer(kept["W"], kept["H"], result.iterations, result.status)


def _after_others(case: Case) -> Answer:
    for size in (3, 5, 8):
        factorize_many([OTHER[:size], OTHER[:, :size]], 2)
        factorize(OTHER[:size], 2)
    return _asked(case)


def _turned(case: Case) -> Answer | None:
    """Ask with the entries by columns."""
    if scipy.sparse.issparse(case.V):
        return None
    return _asked(replace(case, V=np.asfortranarray(case.V)))


def _at_an_odd_place(case: Case) -> Answer | None:
    """Ask with entries that begin between two places that memory begins at, as in a slice."""
    if scipy.sparse.issparse(case.V):
        return None
    room = np.empty(case.V.size + 16, case.V.dtype)
    first = -room.ctypes.data % 64 // room.itemsize + 1
    odd = room[first : first + case.V.size].reshape(case.V.shape)
    odd[...] = case.V
    return _asked(replace(case, V=odd))


def _among_many(case: Case, **more: Any) -> Answer | None:
    """Ask for the case in a list, between two others."""
    is_of_its_shape = any(case is CASES[name] for name in ("known columns", "symmetric"))
    if "n_init" in case.options or is_of_its_shape:
        return None  # lists keep every run, and other matrices are neither square nor of one size
    found = factorize_many(
        [OTHER, case.V, OTHER], [3, case.rank, 2], random_state=SEED - 1, **case.options, **more
    )
    return Answer.of(dict(found)[1] if "as_completed" in more else found[1])


def _alone_of_many(V: Any, case: Case) -> Answer | None:
    if "n_init" in case.options:
        return None
    found = factorize_many(V, [case.rank], random_state=SEED, **case.options)
    return Answer.of(found[0])


def _in_a_folder(case: Case) -> Answer | None:
    with tempfile.TemporaryDirectory() as name:
        first, again = (_among_many(case, folder=name) for _ in range(2))
        if first is not None and again is not None:
            _assert_same_bits(first, again)
        return again


@contextmanager
def _others_at_work() -> Iterator[None]:
    """Another thread factorizes other matrices meanwhile."""
    over = Event()

    def work() -> None:
        while not over.is_set():
            factorize_many([OTHER, OTHER.T], 2)
            over.wait(0.002)

    thread = Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _beside_others(ask: Callable[[Case], Answer | None]) -> Callable[[Case], Answer | None]:
    def beside(case: Case) -> Answer | None:
        with _others_at_work():
            return ask(case)

    return beside


OTHER = _planted(33, 21, 4, 11)
WAYS = {
    "factorize": Way(_asked),
    "estimator": Way(_estimated),
    "command line": Way(_commanded),
    "callback": Way(lambda case: _asked(case, callback=lambda row: None)),
    "watch": Way(lambda case: _asked(case, watch=lambda x, trace: False)),
    "time limit": Way(lambda case: _asked(case, time_limit=1e6)),
    "after others": Way(_after_others),
    "beside others": Way(_beside_others(_asked)),
    "entries by columns": Way(_turned),
    "odd place in memory": Way(_at_an_odd_place),
    "factorize_many": Way(lambda case: _alone_of_many([case.V], case)),
    "one matrix": Way(lambda case: _alone_of_many(case.V, case)),
    "in a list": Way(_among_many),
    "as completed": Way(lambda case: _among_many(case, as_completed=True)),
    "folder": Way(_in_a_folder),
    "list beside others": Way(_beside_others(_among_many)),
}
each_way = pytest.mark.parametrize("way", WAYS)
each_case = pytest.mark.parametrize("case", CASES)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Use so many threads, in torch and in the core, whatever the machine has."""
    before, module = torch.get_num_threads(), core()
    torch.set_num_threads(count)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FACTORMER_NUM_THREADS", str(count))
            if module is not None:
                assert module.threads() == count
            yield
    finally:
        torch.set_num_threads(before)


# The law


def _assert_same_bits(found: Answer, expected: Answer) -> None:
    np.testing.assert_array_equal(found.W, expected.W)
    np.testing.assert_array_equal(found.H, expected.H)
    assert found[2:] == expected[2:]


def _assert_rounded_alike(case: Case, found: Answer, expected: Answer) -> None:
    single = any(stage.view is plans.View.SINGLE for stage in case.plan.stages)
    factors, errors = ROUNDING[np.dtype(np.float32) if single else case.V.dtype]
    for F, G in zip(found[:2], expected[:2], strict=True):
        np.testing.assert_allclose(F, G, rtol=0, atol=factors * G.max())
    assert case.error(found) == pytest.approx(case.error(expected), rel=errors, abs=1e-14)
    assert found[2:] == expected[2:]


@pytest.fixture(scope="module")
def expected() -> Callable[[str, str], Answer]:
    """Return the answers, on one thread, of those ways that others have to equal."""
    found: dict[tuple[str, str], Answer] = {}

    def get(way: str, case: str) -> Answer:
        if (way, case) not in found:
            answer = WAYS[way].ask(CASES[case])
            assert answer is not None
            found[way, case] = answer
        return found[way, case]

    return get


@pytest.fixture
def one_thread() -> Iterator[None]:
    with _threads(1):
        yield


@each_case
@each_way
@pytest.mark.usefixtures("one_thread")
def test_every_way_gives_one_answer(way, case, expected):
    answer = WAYS[way].ask(CASES[case])
    if answer is None:
        return
    _assert_same_bits(answer, expected("factorize", case))


@each_case
@pytest.mark.parametrize("way", ["factorize", "estimator", "command line", "in a list"])
def test_threads_change_no_bit_of_the_core_and_elsewhere_rounding(way, case, expected, one_thread):
    """Torch cuts products with V by threads; the core by shapes alone."""
    one, asked = expected("factorize", case), CASES[case]
    for count in (2, 16) if asked.is_served_by_the_core else (2,):
        with _threads(count):
            answer, again = WAYS[way].ask(asked), WAYS[way].ask(asked)
        if answer is None or again is None:
            return
        _assert_same_bits(again, answer)
        if asked.is_served_by_the_core:
            _assert_same_bits(answer, one)
        else:
            _assert_rounded_alike(asked, answer, one)


@each_case
@pytest.mark.usefixtures("one_thread")
def test_replicates_are_what_their_seeds_give(case):
    """A seed is that of `factorize` with `init="random"`."""
    asked = CASES[case]
    options: dict[str, Any] = {"init": "random"} | asked.options
    if "n_init" in options:
        return
    asked = replace(asked, options=options)
    runs = factorize_many(asked.V, [asked.rank], n_init=2, random_state=SEED - 1, **options)
    answer, expected = Answer.of(runs[1]), WAYS["factorize_many"].ask(asked)
    if expected is not None:
        _assert_same_bits(answer, expected)
