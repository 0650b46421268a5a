"""Every start and solver by its name, and what each needs of a problem.

A solver declares its needs, and a problem has traits: neither refers to the other by name. Several
solvers may share a name; the first whose needs are met serves. To add one, write its file and one
line here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from factormer.accelerate.base import Restarted
from factormer.accelerate.cuda_graph import Captured
from factormer.accelerate.extrapolate import Extrapolation
from factormer.accelerate.her import HER
from factormer.accelerate.lookahead import Lookahead
from factormer.data import Dense
from factormer.problem.problem import Problem
from factormer.run import thresholds as T
from factormer.sentence import Sentence
from factormer.solvers.ao_admm import AOADMM, TraceAOADMM
from factormer.solvers.base import Solver
from factormer.solvers.hals import HALS
from factormer.solvers.multiplicative import Multiplicative
from factormer.solvers.newton import Newton
from factormer.solvers.proximal import ProximalADMM
from factormer.solvers.symmetric import Symmetric
from factormer.starts import NNDSVD, Initializer, Merged, Random, Rotated, Separable, Vertices


class Asked(NamedTuple):
    """A problem that a solver is asked for, and whether its two factors are tied to be one."""

    problem: Problem
    tied: bool = False


class Trait(NamedTuple):
    """Something that a solver may need of a problem, and the message if it is missing."""

    holds: Callable[[Asked], bool]
    lacking: str


TRAITS = {
    "tied": Trait(lambda a: a.tied, Sentence("solves V ≈ H Hᵀ, which {symmetric=True} asks for")),
    "free": Trait(
        lambda a: not a.tied,
        Sentence("solves for two factors, and {symmetric=True} asks for one"),
    ),
    "least squares": Trait(lambda a: a.problem.is_plain, "serves only the plain squared error"),
    "divergence": Trait(
        lambda a: not a.problem.is_plain,
        "is for other losses, unknown entries, weights and penalties",
    ),
    "squared error": Trait(
        lambda a: a.problem.is_quadratic,
        "serves only the squared error of known entries with equal weights",
    ),
    "elastic": Trait(
        lambda a: a.problem.is_elastic, "takes only L1 and L2 as penalties; use 'ao-admm'"
    ),
    "one matrix": Trait(
        lambda a: len(a.problem.V.shape) == 2, "serves one matrix, and V is a stack of them"
    ),
    "β": Trait(
        lambda a: a.problem.loss.kernel_beta is not None, "knows only β-divergences; use 'mu'"
    ),
}


class Kind(NamedTuple):
    """A solver by name: how to make it for a problem, what it needs, what it is in a few words."""

    name: str
    make: Callable[[Problem], Solver[Any]]
    needs: tuple[str, ...]
    says: str

    def lacks(self, asked: Asked) -> str | None:
        """The first need that is not met."""
        return next((need for need in self.needs if not TRAITS[need].holds(asked)), None)


def _newton(problem: Problem) -> Solver[Any]:
    is_bold = isinstance(problem.V, Dense) and problem.loss.is_for_counts
    n_sweeps, growth = T.BOLD if is_bold else T.STEPS
    return Restarted(Newton(n_sweeps=n_sweeps), Extrapolation(gamma=growth))


def her_admm() -> Captured:
    """ADMM, extrapolated with restart, recorded on a GPU."""
    return Captured(TraceAOADMM(n_inner=10, tol=0.0, share=0.1), Extrapolation())


def _ahead(problem: Problem) -> Solver[Any]:
    """On a GPU iterations ahead are recorded."""
    return Lookahead() if problem.V.device.type == "cpu" else Lookahead(ahead=her_admm())


def _admm(problem: Problem) -> Solver[Any]:
    known = problem.on_w.is_settled or problem.on_h.is_settled
    return ProximalADMM() if known else Restarted(ProximalADMM(), Extrapolation())


_PLAIN = ("free", "least squares")
_LOSS = ("free", "divergence", "elastic")

SOLVERS: tuple[Kind, ...] = (
    Kind(
        "ahead",
        _ahead,
        (*_PLAIN, "one matrix"),
        "HALS, with more iterations on a small matrix between passes over V",
    ),
    Kind("her", lambda _: HER(), _PLAIN, "HALS, extrapolated with restart"),
    Kind(
        "her-admm",
        lambda _: her_admm(),
        _PLAIN,
        "ADMM, extrapolated with restart",
    ),
    Kind("hals", lambda _: HALS(), _PLAIN, "hierarchical alternating least squares"),
    Kind("ao-admm", lambda _: AOADMM(), _PLAIN, "the paper's solver, ρ = 1"),
    Kind("ao-admm-trace", lambda _: TraceAOADMM(), _PLAIN, "AO-ADMM with ρ = tr/r"),
    Kind("mu", lambda _: Multiplicative(), _PLAIN, "multiplicative updates"),
    Kind("hals", lambda _: Symmetric(), ("tied", "least squares"), "HALS on one factor"),
    Kind(
        "newton",
        _newton,
        (*_LOSS, "β"),
        "Newton steps row by row, extrapolated with restart",
    ),
    Kind("mu", lambda _: Multiplicative(), _LOSS, "multiplicative updates"),
    Kind(
        "mu-extrapolated",
        lambda _: Restarted(Multiplicative(floor=1e-10), Extrapolation()),
        _LOSS,
        "multiplicative updates, extrapolated with restart",
    ),
    Kind(
        "hals",
        lambda _: Restarted(HALS(), Extrapolation()),
        (*_LOSS, "squared error"),
        "HALS with L1 and L2, extrapolated with restart",
    ),
    Kind(
        "ao-admm",
        _admm,
        ("free", "divergence", "squared error"),
        "ADMM with proximal steps, extrapolated with restart",
    ),
    Kind("ao-admm", lambda _: ProximalADMM(), ("free", "divergence"), "ADMM with proximal steps"),
)
ALIASES = {"cd": "hals"}  # scikit-learn's coordinate descent is HALS

STARTS: dict[str, Callable[[], Initializer]] = {
    "random": Random,
    "nndsvd": NNDSVD,
    "nndsvda": lambda: NNDSVD(fill=1.0),
    "nndsvdar": lambda: NNDSVD(fill=0.01, random=True),
    "rotated": Rotated,
    "merged": Merged,
    "separable": Separable,
    "vertices": Vertices,
}
DETERMINED = ("nndsvd", "nndsvda", "vertices", "custom")  # starts in which nothing is random


def is_solver(name: str) -> bool:
    """Whether a solver has this name; "auto" is none."""
    return name in ALIASES or any(kind.name == name for kind in SOLVERS)


def solver_kind(name: str, problem: Problem, *, tied: bool = False) -> Kind:
    """Return the solver of this name that serves the problem; if none does, raise an error."""
    asked = Asked(problem, tied)
    named = [kind for kind in SOLVERS if kind.name == ALIASES.get(name, name)]
    for kind in named:
        if kind.lacks(asked) is None:
            return kind
    names = ", ".join(serving(asked))
    order = list(TRAITS)
    lacks = max((str(kind.lacks(asked)) for kind in named), key=order.index)  # the nearest miss
    raise ValueError(
        Sentence(
            "{solver} is {given!r}, which {lacking}; choose one of {names}",
            given=name,
            lacking=TRAITS[lacks].lacking,
            names=names,
        )
    )


def serving(asked: Asked) -> list[str]:
    """Return the names that serve the problem, "auto" first."""
    names = list(dict.fromkeys(kind.name for kind in SOLVERS if kind.lacks(asked) is None))
    return ["auto", *names, *(alias for alias, name in ALIASES.items() if name in names)]
