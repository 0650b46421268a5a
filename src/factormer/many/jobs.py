"""What many factorizations are asked for: matrices, ranks, seeds and what they have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from factormer.data import Blocks, Dense, Matrix
from factormer.data.device import as_devices
from factormer.data.intake import aligned, like
from factormer.data.keywords import as_rank, as_seed
from factormer.data.observations import observe
from factormer.many.loose import Loose
from factormer.many.ragged import Ragged
from factormer.many.reading import read
from factormer.many.resample import RESAMPLES, check_resampling, resampled
from factormer.run.choose import choose
from factormer.run.plan import Plan
from factormer.run.request import Request, check_choice, check_count
from factormer.sentence import Sentence

# Keywords of `factorize` that many problems can have in common.
COMMON = (
    "init",
    "solver",
    "accelerator",
    "max_iter",
    "tol",
    "stop",
    "loss",
    "regularize_W",
    "regularize_H",
    "symmetric",
    "order",
    "scale",
    "engine",
    "safeguard",
)


class Job(NamedTuple):
    """One factorization: which matrix, at which rank, the number of the run, and its seed."""

    problem: int
    rank: int
    run: int
    seed: int


@dataclass(frozen=True, eq=False)
class Jobs:
    """All factorizations of a call, in the order of the results.

    `sources` are the matrices, or one stack of them; a job is a place in the arrays.
    """

    sources: list[Matrix] | Loose | Dense
    problem: np.ndarray
    rank: np.ndarray
    run: np.ndarray
    seed: np.ndarray
    options: dict[str, Any]
    as_given: list[Any]  # for each problem, how to hand out its factors
    resample: str | None = None
    devices: tuple[torch.device, ...] = ()  # several, if the jobs are to be shared out
    numbers: np.ndarray | None = None  # of the problems, where these are some of them

    def __len__(self) -> int:
        return len(self.problem)

    def __getitem__(self, index: int) -> Job:
        return Job(*(int(c[index]) for c in (self.problem, self.rank, self.run, self.seed)))

    def number(self, index: int) -> int:
        """The number of the problem of a job, as the caller counts."""
        problem = int(self.problem[index])
        return problem if self.numbers is None else int(self.numbers[problem])

    def matrix(self, index: int) -> Matrix:
        """The matrix of a job, drawn anew where that is asked."""
        V, job = self.source(int(self.problem[index])), self[index]
        return V if self.resample is None else resampled(V, self.resample, job.seed)

    def matrices(self, indices: list[int]) -> list[Matrix]:
        """Return the matrix of each of these jobs; those of one problem share it."""
        if self.resample is not None:
            return [self.matrix(index) for index in indices]
        problems = self.problem[indices].tolist()
        found = {problem: self.source(problem) for problem in set(problems)}
        return [found[problem] for problem in problems]

    def source(self, problem: int) -> Matrix:
        """A matrix as it was given, checked now if it was not before."""
        V = self.sources
        if isinstance(V, Loose):
            return read(V.tensors[problem], problem, None, None)
        return V[problem] if isinstance(V, list) else Dense(aligned(V.entries[problem]))

    @cached_property
    def sizes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows and columns of V and the rank, of each job."""
        V = self.sources
        if isinstance(V, Loose):
            m, n = V.m, V.n
        else:
            m, n = np.array([A.shape for A in V] if isinstance(V, list) else [V.shape[1:]]).T
            m, n = (m, n) if isinstance(V, list) else (m.repeat(V.shape[0]), n.repeat(V.shape[0]))
        return m[self.problem], n[self.problem], self.rank

    @cached_property
    def is_uniform(self) -> bool:
        """Whether all have one shape and one rank, as a stack may."""
        V = self.sources
        return (
            not isinstance(V, list)
            and (isinstance(V, Dense) or all(bool((k == k[0]).all()) for k in (V.m, V.n)))
            and bool((self.rank == self.rank[0]).all())
        )

    @cached_property
    def device(self) -> torch.device:
        """Where the first matrix is."""
        V = self.sources
        first = V.tensors[0] if isinstance(V, Loose) else V[0] if isinstance(V, list) else V
        return first.device

    @cached_property
    def is_on_gpu(self) -> bool:
        """Whether all matrices are on one GPU."""
        V, device = self.sources, self.device
        return device.type == "cuda" and not (
            isinstance(V, list) and any(A.device != device for A in V)
        )

    @cached_property
    def is_plain(self) -> np.ndarray:
        """Which jobs have dense data without weights, as far as is known."""
        V = self.sources
        if not isinstance(V, list):
            return np.ones(len(self), bool)
        return np.array([isinstance(A, Dense) for A in V], bool)[self.problem]

    def dtype(self, index: int) -> torch.dtype:
        """The precision of a job's matrix."""
        V = self.sources
        if isinstance(V, Dense):
            return V.dtype
        if isinstance(V, Loose) and len(V.dtypes) == 1:
            return next(iter(V.dtypes))
        some = V.tensors if isinstance(V, Loose) else V
        return some[int(self.problem[index])].dtype

    def addresses(
        self, indices: np.ndarray, *, is_transposed: bool = False
    ) -> tuple[list[Tensor], np.ndarray]:
        """Where the entries of these jobs are in memory, in float32; and what holds them."""

        def stored(A: Tensor) -> Tensor:
            return (A.mT if is_transposed else A).float().contiguous()

        V, problem = self.sources, self.problem[indices]
        if self.resample is not None:
            drawn = [stored(self.matrix(int(k)).entries) for k in indices]  # pyright: ignore
            return drawn, np.array([A.data_ptr() for A in drawn])
        if isinstance(V, Loose):
            if V.pointers is not None and not is_transposed:
                return [], V.pointers[problem]  # the caller holds them
            if isinstance(V.tensors, Ragged) and self.is_uniform:
                chosen, places = np.unique(problem, return_inverse=True)
                stack = stored(V.tensors.stacked(chosen))
                return [stack], stack.data_ptr() + places * (4 * stack[0].numel())
            held = {k: stored(V.tensors[k]) for k in np.unique(problem).tolist()}
            return list(held.values()), np.array([held[k].data_ptr() for k in problem.tolist()])
        if not isinstance(V, list):
            stack = stored(V.entries)
            return [stack], stack.data_ptr() + problem * (4 * stack[0].numel())
        held = {k: stored(V[k].entries) for k in np.unique(problem).tolist()}  # pyright: ignore
        return list(held.values()), np.array([held[k].data_ptr() for k in problem.tolist()])

    def request(self, index: int) -> Request:
        """A job as a request of its own: what a single call would make of it."""
        job = self[index]
        V = self.matrix(index)
        return Request.of(V, job.rank, random_state=job.seed, **self.options)

    @cached_property
    def _plans(self) -> dict[tuple[Any, ...], Plan]:
        return {}

    def plan(self, index: int) -> Plan:
        """How a job would be carried out alone; jobs of one kind share what was chosen."""
        return self.plans([index])[0]

    def plans(self, indices: Sequence[int] | np.ndarray) -> list[Plan]:
        """Return the plan of each of these jobs."""
        pairs = zip(self.problem[indices].tolist(), self.rank[indices].tolist(), strict=True)
        return [self._plans.get(pair) or self._planned(*pair) for pair in pairs]

    def _planned(self, problem: int, rank: int) -> Plan:
        V: Any = self.sources
        V = V.tensors[problem] if isinstance(V, Loose) else V[problem] if isinstance(V, list) else V
        kind = (type(V), tuple(V.shape[-2:]), V.dtype, V.device, rank)
        if kind not in self._plans:
            self._plans[kind] = choose(Request.of(self.source(problem), rank, **self.options))
        self._plans[problem, rank] = self._plans[kind]
        return self._plans[kind]

    def ready(self, index: int) -> Plan:
        """The plan of a job with its matrix and seed, chosen for just these."""
        return choose(self.request(index))


def jobs_of(
    problems: Any,
    ranks: Any,
    *,
    n_init: int,
    resample: str | None,
    random_state: Any,
    missing: str | None,
    device: Any,
    options: dict[str, Any],
    memory_limit: Any = None,
) -> Jobs:
    """Read the arguments of `factorize_many`.

    A list or a stack holds problems, each at the rank of `ranks` in its place, or all at one; any
    other matrix is one problem at every rank. Job k has the seed random_state + k, or
    random_state[k].
    """
    check_count("n_init", n_init)
    if (
        n_init > 1
        and options.get("init", "auto") == "auto"
        and options.get("loss", 2) in (2, "frobenius")
    ):
        options = {**options, "init": "random"}  # replicates are to differ
    check_choice("resample", resample, RESAMPLES)
    if ranks is None:
        raise ValueError("ranks is missing; pass a whole number, or a list of them")
    devices = tuple(as_devices(device))
    one = devices[0] if len(devices) == 1 else None  # else they move later
    sources = _sources(problems, missing, one, memory_limit, may_wait=not devices)
    count = len(problems) if _is_many(problems) else 1
    if _is_many(problems):
        each = _ranks(ranks, count)
        problem = np.repeat(np.arange(count), n_init)
        rank = np.repeat(each, n_init)
    else:
        asked = np.atleast_1d(_as_ranks(ranks))
        problem, rank = np.zeros(len(asked) * n_init, int), np.repeat(asked, n_init)
    run = np.tile(np.arange(n_init), len(problem) // n_init)
    seed = _seeds(random_state, len(problem))
    check_resampling(sources if isinstance(sources, list) else [], resample)
    if isinstance(problems, list | tuple) and not isinstance(sources, Loose):
        as_given = [like(V) for V in problems]
    else:
        as_given = [like(problems[0] if _is_many(problems) else problems)] * count
    several = devices if len(devices) > 1 else ()
    _check_devices(sources, several)
    return Jobs(sources, problem, rank, run, seed, options, as_given, resample, several)


def _check_devices(sources: Any, devices: tuple[torch.device, ...]) -> None:
    """Refuse several for data that is read in blocks."""
    if devices and isinstance(sources, list) and any(isinstance(V, Blocks) for V in sources):
        raise ValueError(
            Sentence(
                "{device} names {count} devices, and V is read in blocks, one pass for all jobs: "
                "name one device, or raise {memory_limit} so that V fits into memory",
                count=len(devices),
            )
        )


def _seeds(random_state: Any, count: int) -> np.ndarray:
    """The seed of each job: one after another, or as given."""
    if isinstance(random_state, Sequence | np.ndarray) and not isinstance(random_state, str):
        seeds = [as_seed(seed) for seed in random_state]
        if len(seeds) == count and None not in seeds:
            return np.array(seeds, np.int64)
        raise ValueError(
            Sentence(
                "{random_state} has {k} numbers for {n} jobs; pass one for each, or the first",
                k=len(seeds),
                n=count,
            )
        )
    first = as_seed(random_state)
    first = int(np.random.SeedSequence().generate_state(1)[0]) if first is None else first
    if first + count > 2**63:
        raise ValueError(
            Sentence(
                "{random_state} is {first}; with one seed for each of {count} jobs it must be at "
                "most {most}",
                first=first,
                count=count,
                most=2**63 - count,
            )
        )
    return first + np.arange(count)


def _is_many(problems: Any) -> bool:
    return isinstance(problems, list | tuple | Ragged) or getattr(problems, "ndim", 2) > 2


def _sources(
    problems: Any,
    missing: str | None,
    device: torch.device | None,
    memory_limit: Any,
    *,
    may_wait: bool,
) -> list[Matrix] | Loose | Dense:
    """The matrices; tensors on a GPU are checked later."""
    if missing is None and device is None and Ragged.is_stack(problems):
        problems = Ragged.of_stack(problems)
    if isinstance(problems, list | tuple | Ragged):
        if not len(problems):
            raise ValueError("problems is empty; pass one matrix at least")
        loose = Loose.of(problems) if missing is None and may_wait else None
        if loose is not None:
            return loose
        return [read(V, k, missing, device, memory_limit) for k, V in enumerate(problems)]
    matrix = observe(problems, missing=missing, device=device, memory_limit=memory_limit)
    if len(matrix.shape) == 2:
        return [matrix]
    if len(matrix.shape) > 3 or not isinstance(matrix, Dense):
        raise ValueError(
            f"problems has shape {matrix.shape}; pass a stack (problems, m, n) without unknown "
            "entries, or a list of matrices"
        )
    return matrix


def _as_ranks(ranks: Any) -> np.ndarray:
    if isinstance(ranks, str):
        raise ValueError(f"ranks is {ranks!r}; it must be a whole number, or a list of them")
    is_list = isinstance(ranks, Iterable) and not hasattr(ranks, "__array__")
    array = np.asarray(list(ranks) if is_list else ranks)
    if array.dtype.kind not in "iu" or (array < 1).any():
        for rank in array.ravel():  # one of which is to blame
            as_rank(rank.item() if isinstance(rank, np.generic) else rank)
    if array.ndim > 1 or array.size == 0:
        raise ValueError(f"ranks is {ranks!r}; it must be a whole number, or a list of them")
    return array.astype(int)


def _ranks(ranks: Any, count: int) -> np.ndarray:
    array = _as_ranks(ranks)
    if array.ndim and len(array) != count:
        raise ValueError(
            f"ranks has {len(array)} numbers for {count} problems; pass one for each, or one for "
            "all"
        )
    return np.broadcast_to(array, count)
