"""The only place where a name ("ao-admm", "init-r10", "auto") becomes an object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from factormer.accelerate.base import Accelerated
from factormer.accelerate.learned import LearnedAccelerator, LearnedInit
from factormer.factors import Factors
from factormer.initialize import NNDSVD, Given, Initializer, Random
from factormer.matrix import Matrix
from factormer.nn import zoo
from factormer.nn.refining import Network
from factormer.solvers.ao_admm import AOADMM, TraceAOADMM
from factormer.solvers.base import Solver
from factormer.solvers.hals import HALS

SOLVERS = {"ao-admm": AOADMM, "ao-admm-trace": TraceAOADMM, "hals": HALS}
STARTS = {"random": Random, "nndsvd": NNDSVD, "nndsvda": lambda: NNDSVD(fill=1.0)}


def initializer(
    name: str | Path, V: Matrix, rank: int, custom: Factors | None = None
) -> Initializer:
    """The start of that name. "auto" is NNDSVD, and random where the rank exceeds min(m, n)."""
    name = _as_name("init", name)
    if (name == "custom") != (custom is not None):
        raise ValueError("init='custom' goes with W and H, and W and H go with init='custom'")
    if custom is not None:
        return Given(custom)
    if name == "auto":
        return NNDSVD() if rank <= min(V.shape[-2:]) else Random()
    if name in STARTS:
        return STARTS[name]()
    if _ships(name, use="init"):
        return LearnedInit(_network(name, V))
    names = _names(["auto", *STARTS, "custom"], "init")
    raise ValueError(f"init is {name!r}; choose one of {names}")


def solver(name: str, accelerator: str | Path | None, V: Matrix) -> Solver[Any]:
    """The solver of that name, wrapped in the accelerator of that name.

    "auto" is "hals", which needs no scale, never raises the loss and ends lower than AO-ADMM after
    as many iterations (docs/log.md), also where a network proposes between them.
    """
    name = "hals" if name == "auto" else name
    accelerator = None if accelerator is None else _as_name("accelerator", accelerator)
    if name not in SOLVERS:
        raise ValueError(f"solver is {name!r}; choose one of {_names(['auto', *SOLVERS])}")
    plain = SOLVERS[name]()
    if accelerator in (None, "auto"):
        return plain
    if not _ships(accelerator, use="accelerator"):
        names = _names(["auto", "None"], "accelerator")
        raise ValueError(f"accelerator is {accelerator!r}; choose one of {names}")
    return Accelerated(plain, LearnedAccelerator(_network(accelerator, V)))


def _as_name(keyword: str, value: Any) -> str:
    if not isinstance(value, str | Path):
        raise ValueError(f"{keyword} is {value!r}; it must be a name or the path of a network")
    return str(value)


def _network(name: str, V: Matrix) -> Network:
    return zoo.load_model(name).to(V.device)


def _ships(name: str, *, use: str) -> bool:
    if name.endswith(".safetensors"):
        return True
    card = zoo.models().get(name)
    return card is not None and card.use == use


def _names(plain: list[str], use: str = "") -> str:
    return ", ".join(plain + [n for n, card in zoo.models().items() if card.use == use])
