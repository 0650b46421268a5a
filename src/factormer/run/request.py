"""Request: the arguments, read and checked once; nothing in it is decided yet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from factormer.data import Blocks, Matrix
from factormer.data.factors import Factors
from factormer.data.intake import as_factors
from factormer.data.keywords import as_rank, as_seed, check_limits, check_room
from factormer.problem.checks import checked
from factormer.problem.loss import Loss
from factormer.problem.losses import as_loss
from factormer.problem.penalties import Penalties
from factormer.problem.problem import Problem
from factormer.run.registry import STARTS
from factormer.sentence import Option, Sentence

ORDERS, SCALES = ("share", None), ("balanced", "sum", None)
STOPS = ("auto", "gradient", "sklearn")
ENGINES = ("auto", "core", "reference")
SAFEGUARDS = ("descent", "always")


class Limits(NamedTuple):
    """When to stop: after so many iterations or seconds, or by a rule of `run.stop` and its `tol`.

    The rules are `Pace` ("auto"; beyond memory `Stationary`), `Stationary` ("gradient") and
    `Decrease` ("sklearn").
    """

    max_iter: int = 500
    tol: float = 1e-4
    time_limit: float | None = None
    stop: str = "auto"


DEFAULTS = Limits()


@dataclass(frozen=True, eq=False, kw_only=True)
class Request:
    """One factorization to make."""

    problem: Problem
    is_symmetric: bool = False
    start: str = "auto"
    x0: Factors | None = None
    solver: str = "auto"
    accelerator: str | None = "auto"
    limits: Limits = DEFAULTS
    seed: int | None = 0
    n_init: int = 1
    order: str | None = "share"
    scale: str | None = "balanced"
    engine: str = "auto"
    safeguard: str = "descent"

    @property
    def stop(self) -> str:
        """The rule by which a run converges; data beyond memory has another one by default."""
        rule = self.limits.stop
        is_beyond = rule == "auto" and isinstance(self.problem.V, Blocks)
        return "gradient" if is_beyond else rule

    @property
    def names_network(self) -> bool:
        """Whether a network was asked for, as accelerator or as start."""
        return self.accelerator not in (None, "auto") or is_network(self.start)

    @property
    def on_w(self) -> Penalties:
        """The penalties on W."""
        return self.problem.on_w

    @property
    def on_h(self) -> Penalties:
        """The penalties on H."""
        return self.problem.on_h

    @property
    def loss(self) -> Loss:
        """The loss."""
        return self.problem.loss

    @property
    def is_settled(self) -> bool:
        """Whether all of H is known, and only W is to be found."""
        return self.on_h.is_settled

    @property
    def keeps_order(self) -> bool:
        """Whether components keep their order: with a given start, or known components."""
        return self.x0 is not None or self.on_h.fixed is not None or self.on_w.fixed is not None

    @property
    def is_free(self) -> bool:
        """Whether components may be scaled: penalties and V ≈ H Hᵀ fix the scale."""
        return self.problem.is_free and not self.is_symmetric

    @staticmethod
    def of(
        V: Matrix,
        rank: Any,
        *,
        loss: Any = "frobenius",
        regularize_W: Any = None,
        regularize_H: Any = None,
        symmetric: bool = False,
        init: str | Path = "auto",
        W: Any = None,
        H: Any = None,
        solver: str = "auto",
        accelerator: str | Path | None = "auto",
        max_iter: int = 500,
        tol: float | int = 1e-4,
        stop: str = "auto",
        time_limit: float | int | None = None,
        random_state: int | None = 0,
        n_init: int = 1,
        order: str | None = "share",
        scale: str | None = "balanced",
        engine: str = "auto",
        safeguard: str = "descent",
    ) -> Request:
        """Read the keywords that `factorize`, `NMF` and the command line share."""
        check_limits(max_iter, tol, time_limit)
        check_choice("stop", stop, STOPS)
        check_choice("order", order, ORDERS)
        check_choice("scale", scale, SCALES)
        check_choice("engine", engine, ENGINES)
        check_choice("safeguard", safeguard, SAFEGUARDS)
        check_count("n_init", n_init)
        rank = as_rank(rank)
        check_room(V, rank)
        on_w, on_h = (
            Penalties.of(regularize_W, "regularize_W"),
            Penalties.of(regularize_H, "regularize_H"),
        )
        problem = checked(Problem(V, rank, as_loss(loss), on_w, on_h))
        if symmetric:
            _check_symmetry(problem)
        init = as_name("init", init)
        x0 = None if W is None and H is None else as_factors(W, H, V, rank)
        if (init == "custom") != (x0 is not None):
            raise ValueError(
                Sentence("{init=custom} goes with W and H, and W and H go with {init=custom}")
            )
        if not isinstance(solver, str):
            raise ValueError(Sentence("{solver} is {given!r}; it must be a name", given=solver))
        return Request(
            problem=problem,
            is_symmetric=bool(symmetric),
            start=init,
            x0=x0,
            solver=solver,
            accelerator=None if accelerator is None else as_name("accelerator", accelerator),
            limits=Limits(
                int(max_iter), float(tol), None if time_limit is None else float(time_limit), stop
            ),
            seed=as_seed(random_state),
            n_init=int(n_init),
            order=order,
            scale=scale,
            engine=engine,
            safeguard=safeguard,
        )


def is_network(start: str) -> bool:
    """Whether a start is learned; those need the entries of V one by one."""
    return start not in ("auto", "custom", *STARTS)


def _check_symmetry(problem: Problem) -> None:
    """Check that V = Vᵀ and that the loss is the squared error."""
    V = problem.V
    if not problem.is_plain:
        raise ValueError(
            Sentence(
                "{symmetric=True} goes only with the squared error: leave out {loss}, {mask}, "
                "{weights}, {missing} and {regularize_W}, {regularize_H}"
            )
        )
    m, n = V.shape[-2:]
    if m != n:
        raise ValueError(
            Sentence(
                "{symmetric=True} needs a square V with V = Vᵀ; V has shape {shape}", shape=(m, n)
            )
        )
    probe = torch.linspace(0, 1, n, dtype=V.dtype, device=V.device)[:, None]
    probe = probe.expand(*V.shape[:-2], n, 1).contiguous()
    there, back = V @ probe, V.T @ probe
    if not torch.allclose(there, back, rtol=1e-4, atol=1e-4 * float(there.abs().max())):
        raise ValueError(Sentence("{symmetric=True} needs V = Vᵀ, and V is not: pass (V + Vᵀ) / 2"))


def as_name(keyword: str, value: Any) -> str:
    """The name of something, or the path of a network, as text."""
    if not isinstance(value, str | Path):
        raise ValueError(
            Sentence(
                "{keyword} is {value!r}; it must be a name or the path of a network",
                keyword=Option(keyword),
                value=value,
            )
        )
    return str(value)


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise if the value is not one of the choices."""
    for choice in choices:
        if value is choice or (isinstance(choice, str) and value == choice):
            return
    raise ValueError(
        Sentence(
            "{name} is {value!r}; choose one of {choices}",
            name=Option(name),
            value=value,
            choices=", ".join(map(repr, choices)),
        )
    )


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Raise if the value is not a whole number of at least `least`."""
    whole = isinstance(value, int) or hasattr(value, "__index__")
    if isinstance(value, bool) or not whole or value < least:
        raise ValueError(
            Sentence(
                "{name} is {value!r}; it must be a whole number of at least {least}",
                name=Option(name),
                value=value,
                least=least,
            )
        )
