"""Cases of the laws: tiny problems drawn by hypothesis, and every solver and start there is.

Those in the registry are under all laws by being registered; here are others beside them.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import assume, settings
from hypothesis import strategies as st
from torch import Tensor

from factormer.accelerate.anyrank import AnyRank
from factormer.accelerate.base import (
    Accelerated,
    AfterIteration,
    Always,
    Descent,
    Hedged,
    Identity,
    Judged,
    Restarted,
)
from factormer.accelerate.learned import LearnedAccelerator, LearnedInit
from factormer.accelerate.lookahead import Lookahead
from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.nn.refining import Network
from factormer.problem.problem import Problem
from factormer.run import registry
from factormer.solvers.ao_admm import AOADMM, TraceAOADMM
from factormer.solvers.base import Solver
from factormer.solvers.hals import HALS
from factormer.starts import Initializer
from tests.networks import random_any_rank, random_network, small_config

RANK = 3  # that of the networks below
MAX_SIZE = 8

law = settings(max_examples=6)


class Case(NamedTuple):
    """A problem and a feasible point of it."""

    problem: Problem
    x0: Factors

    @property
    def entries(self) -> Tensor:
        """The plain entries of V."""
        assert isinstance(self.problem.V, Dense)
        return self.problem.V.entries


# The objects


def network(variant: str, n_points: int) -> Network:
    """A network of random weights, whose proposals are mostly bad."""
    config = small_config(variant=variant, n_points=n_points, n_pairs=1)
    return random_network(config).requires_grad_(False)


def accelerator(variant: str) -> LearnedAccelerator:
    """Return a network with random weights as an accelerator."""
    return LearnedAccelerator(network(variant, 2))


def registered() -> dict[str, Solver[Any]]:
    """The solvers of plain least squares, by their public names."""
    problem = Problem(Dense(torch.ones(2, 2)), 1)
    kinds = [kind for kind in registry.SOLVERS if kind.lacks(registry.Asked(problem)) is None]
    return {kind.name: kind.make(problem) for kind in kinds}


SOLVERS: dict[str, Solver[Any]] = {
    **registered(),
    "HALS-plain": HALS(alpha=0.0),
    "Lookahead-AnyRank": Lookahead(resting=AnyRank(random_any_rank())),
    "AnyRank": Restarted(HALS(alpha=0.0), AnyRank(random_any_rank())),
    "Identity": Accelerated(AOADMM(), Identity()),
    "Learned-Descent": Accelerated(AOADMM(), accelerator("paper"), Descent()),
    "Learned-Always": Accelerated(AOADMM(), accelerator("paper"), Always()),
    "Learned-Hedged": Hedged(Accelerated(AOADMM(), accelerator("paper"), AfterIteration(AOADMM()))),
    "Refining-Descent": Accelerated(TraceAOADMM(), accelerator("refining"), Descent()),
    "Refining-Always": Accelerated(AOADMM(), accelerator("refining"), Always()),
}
INITIALIZERS: dict[str, Initializer] = {
    **{name: make() for name, make in registry.STARTS.items()},
    "Learned": LearnedInit(network("paper", 1)),
    "Learned-Always": LearnedInit(network("paper", 1), safeguard=Always()),
    "Refining": LearnedInit(network("refining", 1)),
}
# Those that draw no random numbers as long as the rank is at most min(m, n).
DETERMINISTIC = {
    name: start
    for name, start in INITIALIZERS.items()
    if name not in ("random", "rotated", "merged", "nndsvdar", "separable", "vertices")
}

BATCHED = {name: s for name, s in SOLVERS.items() if not isinstance(s, Lookahead)}

each_solver = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS.keys())
each_batched_solver = pytest.mark.parametrize("solver", BATCHED.values(), ids=BATCHED.keys())
each_initializer = pytest.mark.parametrize(
    "initializer", INITIALIZERS.values(), ids=INITIALIZERS.keys()
)
each_deterministic_initializer = pytest.mark.parametrize(
    "initializer", DETERMINISTIC.values(), ids=DETERMINISTIC.keys()
)


# The problems


@st.composite
def problems(
    draw: st.DrawFn, *, min_size: int = 1, shape: tuple[int, int] | None = None, zeros: bool = True
) -> Case:
    """A problem in float64 and a point: m, n ≤ 8, rank 3, some rows, columns and entries zero."""
    sizes = st.integers(min_size, MAX_SIZE)
    m, n = shape or (draw(sizes), draw(sizes))
    rng = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    V, W, H = (_uniform(rng, *s) for s in ((m, n), (m, RANK), (n, RANK)))
    if zeros and draw(st.booleans()):
        V = V * (_uniform(rng, m, 1) > 0.2) * (_uniform(rng, 1, n) > 0.2)
        W, H = (F * (_uniform(rng, *F.shape) > 0.2) for F in (W, H))
    with _random_state_kept():
        return Case(Problem(Dense(V), RANK), Factors(W, H))


@contextmanager
def _random_state_kept() -> Iterator[None]:
    """Hypothesis minds that a strategy uses `random`, and beartype does so to check a tuple."""
    state = random.getstate()
    yield
    random.setstate(state)


def _uniform(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=rng, dtype=torch.float64)


def permutations(case: Case, seed: int) -> tuple[Tensor, Tensor]:
    """A permutation of the rows and one of the columns of a problem."""
    rng, (m, n) = torch.Generator().manual_seed(seed), case.problem.V.shape
    return torch.randperm(m, generator=rng), torch.randperm(n, generator=rng)


def permuted(case: Case, p: Tensor, q: Tensor) -> Case:
    """Return the problem and point with rows and columns in another order."""
    V = Dense(case.entries[p][:, q])
    return Case(Problem(V, case.problem.rank), Factors(case.x0.W[p], case.x0.H[q]))


def padded(case: Case, m: int, n: int) -> Case:
    """Return the problem and point, padded with zeros to a larger shape."""
    (rows, cols), r = case.problem.V.shape, case.problem.rank
    V = Dense(pad(case.entries, m, n), torch.arange(m) < rows, torch.arange(n) < cols)
    return Case(Problem(V, r), Factors(pad(case.x0.W, m, r), pad(case.x0.H, n, r)))


def pad(A: Tensor, rows: int, columns: int) -> Tensor:
    """Zeros below and to the right."""
    return torch.nn.functional.pad(A, (0, columns - A.shape[1], 0, rows - A.shape[0]))


def stacked(cases: list[Case]) -> Case:
    """Problems of any sizes in one padded stack."""
    m, n = (max(sizes) for sizes in zip(*(case.problem.V.shape for case in cases), strict=True))
    members = [padded(case, m, n) for case in cases]
    rows = torch.stack([torch.arange(m) < case.problem.V.shape[0] for case in cases])
    cols = torch.stack([torch.arange(n) < case.problem.V.shape[1] for case in cases])
    V = Dense(torch.stack([case.entries for case in members]), rows, cols)
    x0 = Factors(*(torch.stack(F) for F in zip(*(case.x0 for case in members), strict=True)))
    return Case(Problem(V, cases[0].problem.rank), x0)


def run(solver: Solver[Any], case: Case, n_steps: int = 2) -> list[Factors]:
    """The first iterates after x⁰; the accelerated ones are among them."""
    state, points = solver.init(case.problem, case.x0), []
    for _ in range(n_steps):
        state = solver.step(case.problem, state)
        points.append(state.factors)
    return points


def assume_no_exact_fit(solver: Solver[Any], case: Case) -> None:
    """At an exact fit, rounding decides whether the error rose, and so where `Judged` goes.

    Iterations ahead may fit exactly what is known of V wherever the rank allows it.
    """
    if isinstance(solver, Lookahead):
        assume(bool((torch.linalg.matrix_rank(case.entries) > case.problem.rank).all()))
    if isinstance(solver, Judged):
        errors = [case.problem.sq_error(x) for x in run(solver, case)]
        assume(all((error > 1e-9 * case.problem.V.sq_norm()).all() for error in errors))


def generator() -> torch.Generator:
    """Return a generator that gives equal numbers each time."""
    return torch.Generator().manual_seed(0)


def assert_close(x: Factors, y: Factors, *, rtol: float = 1e-7, atol: float = 1e-8) -> None:
    """Assert equality up to rounding."""
    torch.testing.assert_close(x.W, y.W, rtol=rtol, atol=atol)
    torch.testing.assert_close(x.H, y.H, rtol=rtol, atol=atol)
