"""Small problems on a GPU: all that fit on its chip at once, one thread block each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import cycle, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from factormer import kernels
from factormer.data.factors import Factors
from factormer.many.jobs import Jobs
from factormer.many.results import Summaries
from factormer.run.lifting import Squared
from factormer.run.order import SCALES
from factormer.run.plan import Explanation
from factormer.run.request import Request
from factormer.run.result import Result, Status
from factormer.run.trace import Trace, half_square
from factormer.solvers.hals import HALS
from factormer.starts import Random

_STATUS = (Status.CONVERGED, Status.MAX_ITER, Status.NONFINITE)
_STREAMS = 8
_FIRST = Squared(Random()).on_roots  # iterations on √V that begin those under Kullback–Leibler
_MOST_ITERATIONS = 10_000  # whose errors are kept for each problem
_MANY, _LARGE = 32, 4e6  # jobs from which, and entries up to which, V may be beyond the chip
_START = "random: no decomposition on the chip"
_SAYS = (
    "newton on V, in float32, on the chip of the GPU: Newton steps, extrapolated with restart",
    "her on V, in float32, on the chip of the GPU: HALS, extrapolated with restart",
)


def served(jobs: Jobs) -> np.ndarray:
    """The jobs that the chip serves: plain ones by default, where V fits on it or many do not."""
    none = np.empty(0, int)
    if not jobs.is_on_gpu or not _is_default(jobs.plan(0).request):
        return none
    chip = kernels.on_chip()
    if chip is None:
        return none
    m, n, r = (size[:1] if jobs.is_uniform else size for size in jobs.sizes)
    kinds = chip.kinds(m, n, np.minimum(r, chip.RANKS[-1]), chip.available(jobs.device))
    fits = (r <= chip.RANKS[-1]) & (kinds.memory <= chip.available(jobs.device)) & jobs.is_plain
    far = fits & kinds.is_far
    if far.sum() < _MANY or (m * n)[far].max() > _LARGE:
        fits &= ~far
    return np.flatnonzero(fits)


def _is_default(request: Request) -> bool:
    loss = request.problem.loss
    solvers = ("auto", "her") if loss.is_quadratic else ("auto", "newton")
    default = request.solver in solvers and request.accelerator in ("auto", None)
    start = request.start in ("auto", "random") and not request.is_symmetric
    plain = (loss.is_quadratic or _is_kullback(request)) and request.problem.is_free
    limits = request.limits
    return (
        default
        and start
        and plain
        and 0 < limits.max_iter <= _MOST_ITERATIONS
        and limits.stop == "auto"
    )


def _is_kullback(request: Request) -> bool:
    return request.problem.loss.kernel_beta == 1


def factorized(jobs: Jobs, indices: np.ndarray) -> tuple[Bucket, list[Tensor]]:
    """Factorize jobs, those of one kernel together, the largest first; return what kernels read.

    Does not synchronize. Kernels run at the same time, so that the last blocks of one do not keep
    others waiting.
    """
    chip, begun = kernels.on_chip(), time.perf_counter()
    assert chip is not None
    if not jobs.is_uniform:
        indices = indices[_order(jobs, indices)]
    m, n, r = (size[indices] for size in jobs.sizes)
    spans = _spans(jobs, indices)
    w, h = np.cumsum(m * r), np.cumsum(n * r)
    inputs, addresses = jobs.addresses(indices)
    turned, rooms = np.zeros(len(indices), int), np.zeros(len(indices), int)
    for a, b, kind in spans:
        if kind.is_far:
            more, turned[a:b] = jobs.addresses(indices[a:b], is_transposed=True)
            rooms[a:b], inputs = chip.far_room(m[a:b], n[a:b], r[a:b]), inputs + more
    sweeps = _sweeps(*(size[:1] if jobs.is_uniform else size for size in (m, n, r)))
    places = (w - m * r, h - n * r, np.cumsum(rooms) - rooms)
    rows = (addresses, turned, *places, jobs.seed[indices], m, n, r, *sweeps)
    tasks = np.empty((len(indices), len(rows)), np.int64)
    for k, row in enumerate(rows):
        tasks[:, k] = row
    tasks = torch.from_numpy(tasks).to(jobs.device)
    sizes = (int(w[-1]), int(h[-1]), int(rooms.sum()))
    W, H, room = (torch.empty(size, device=jobs.device) for size in sizes)
    report, options = torch.empty(len(indices), 3, device=jobs.device), _options(jobs, indices)
    with _streams(jobs.device) as streams:
        for (a, b, kind), stream in zip(spans, cycle(streams), strict=False):
            with torch.cuda.stream(stream):
                chip.factorize(kind, tasks[a:b], W, H, room, report[a:b], options)
    ends = np.stack([w, h, m, n, r], axis=1)
    return Bucket(jobs, indices, ends, W, H, report, begun), [*inputs, room]


def _options(jobs: Jobs, indices: np.ndarray) -> Any:
    chip, plan = kernels.on_chip(), jobs.plan(int(indices[0]))
    assert chip is not None
    limits, request = plan.request.limits, plan.request
    return chip.Options(
        limits.max_iter,
        limits.tol,
        request.order is not None,
        SCALES[request.scale],
        plan.settles,
        first=_FIRST if request.start == "auto" else 0,
    )


def _sweeps(m: np.ndarray, n: np.ndarray, r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sweeps of the updates of H and of W."""
    sweeps = HALS().all_sweeps
    return sweeps(m, n, r), sweeps(n, m, r)


def _grouped(jobs: Jobs, indices: np.ndarray) -> tuple[np.ndarray, ...]:
    """Of each job: the kernel's rank, threads and place, how many share a processor, and memory."""
    chip = kernels.on_chip()
    assert chip is not None
    most = chip.available(jobs.device)
    kinds = chip.kinds(*(size[indices] for size in jobs.sizes), most)
    blocks = np.minimum(most // kinds.memory, 512 // kinds.threads)
    return kinds.rank, kinds.threads, kinds.is_far, blocks, kinds.memory


def _order(jobs: Jobs, indices: np.ndarray) -> np.ndarray:
    """The order in which those of one kernel follow each other, the largest first."""
    m, n, r = (size[indices] for size in jobs.sizes)
    rank, threads, far, blocks, _ = _grouped(jobs, indices)
    return np.lexsort((-m * n * r, blocks, far, threads, rank))


def _spans(jobs: Jobs, indices: np.ndarray) -> list[tuple[int, int, Any]]:
    """The launches: from where to where, and the kind; those with the most work first."""
    chip = kernels.on_chip()
    assert chip is not None
    some = indices[:1] if jobs.is_uniform else indices
    rank, threads, far, blocks, memory = _grouped(jobs, some)
    changes = (np.diff(np.stack([rank, threads, far, blocks])) != 0).any(axis=0)
    cuts = np.concatenate([[0], np.flatnonzero(changes) + 1, [len(some)]]).tolist()
    m, n, r = (size[some] for size in jobs.sizes)
    spans = sorted(pairwise(cuts), key=lambda span: -(m * n * r)[slice(*span)].sum())
    request = jobs.plan(int(indices[0])).request
    is_kullback = _is_kullback(request)

    def kind(a: int, b: int) -> Any:
        size, bytes_ = (int(rank[a]), int(threads[a])), int(memory[a:b].max())
        return chip.Kind(*size, bool(far[a]), is_kullback, bytes_)

    kinds = [kind(a, b) for a, b in spans]
    if jobs.is_uniform:
        return [(0, len(indices), kinds[0])]
    return [(a, b, kind) for (a, b), kind in zip(spans, kinds, strict=True)]


@contextmanager
def _streams(device: torch.device) -> Iterator[list[torch.cuda.Stream]]:
    """Streams that start after what is queued; what is queued later waits for all of them."""
    usual, streams = torch.cuda.current_stream(device), _some_streams(device)
    for stream in streams:
        stream.wait_stream(usual)
    try:
        yield streams
    finally:
        for stream in streams:
            usual.wait_stream(stream)


@cache
def _some_streams(device: torch.device) -> list[torch.cuda.Stream]:
    return [torch.cuda.Stream(device) for _ in range(_STREAMS)]


class _Report(NamedTuple):
    rmse: np.ndarray
    n_iter: np.ndarray
    status: np.ndarray
    seconds: float  # of all together


@dataclass(frozen=True, eq=False)
class Bucket:
    """Jobs that were factorized on the chip; their numbers are read when they are asked for."""

    jobs: Jobs
    indices: np.ndarray
    ends: np.ndarray  # of W and H among all, and m, n, r
    W: Tensor
    H: Tensor
    report: Tensor
    begun: float

    @cached_property
    def _report(self) -> _Report:
        rmse, n_iter, status = self.report.cpu().numpy().astype(np.float64).T
        seconds = time.perf_counter() - self.begun
        return _Report(rmse, n_iter.astype(int), status.astype(int), seconds)

    def accepted(self) -> Bucket:
        """The jobs that the chip took; others have gaps, numbers beyond float32, or are no data."""
        fine = self._report.status < len(_STATUS)
        if fine.all():
            return self
        report = self.report[torch.from_numpy(fine).to(self.report.device)]
        return replace(self, indices=self.indices[fine], ends=self.ends[fine], report=report)

    def summaries(self) -> Summaries:
        """The numbers of each."""
        names = np.array([status.name for status in _STATUS], object)
        rmse, n_iter, status, _ = self._report
        loss = half_square(rmse, self.ends[:, 2] * self.ends[:, 3])
        return Summaries(rmse, loss, n_iter, names[status])

    def result(self, place: int) -> Result:
        """One of the results; its trace has the end alone."""
        w, h, m, n, r = (int(number) for number in self.ends[place])
        rmse, n_iter, status = (column[place] for column in self._report[:3])
        factors = self.W[w - m * r : w].view(m, r), self.H[h - n * r : h].view(n, r)
        trace, error = Trace(), torch.tensor(rmse, dtype=torch.float64)
        index = int(self.indices[place])
        plan = self._plan(index)
        trace.entries, trace.measure = np.float64(m * n), plan.measure
        trace.extend(
            torch.full((int(n_iter) + 1,), torch.nan, dtype=torch.float64),
            self._report.seconds,
            passes=2 * int(n_iter) + 1,
        )
        trace.rows[-1] = trace.rows[-1]._replace(rmse=error)
        x = Factors(*(F.to(self.jobs.dtype(index)) for F in factors))
        as_given = self.jobs.as_given[int(self.jobs.problem[index])]
        return Result(x, _STATUS[status], trace, error, as_given, plan)

    def _plan(self, index: int) -> Explanation:
        plan = self.jobs.plan(index)
        is_quadratic = plan.request.problem.loss.is_quadratic
        rooted = not is_quadratic and plan.request.start == "auto"
        start = f"random: {_FIRST} iterations on √V first" if rooted else _START
        return plan.carried_out(start, _SAYS[is_quadratic])
