"""Networks by their name: as starts, and inside solvers as accelerators."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import torch

from factormer.accelerate.anyrank import AnyRank
from factormer.accelerate.base import (
    Accelerated,
    AfterIteration,
    Always,
    Descent,
    Hedged,
    Restarted,
    Safeguard,
)
from factormer.accelerate.cuda_graph import Captured
from factormer.accelerate.her import HER
from factormer.accelerate.learned import LearnedAccelerator, LearnedInit
from factormer.accelerate.lookahead import Lookahead
from factormer.accelerate.proposals import Counted
from factormer.accelerate.turned import Turned, TurnedAccelerator
from factormer.data import Blocks, Matrix
from factormer.nn import zoo
from factormer.nn.anyfactormer import AnyFactormer
from factormer.nn.anyrank import AnyRankNetwork
from factormer.nn.rank import RankNetwork
from factormer.sentence import Sentence
from factormer.solvers.base import Solver
from factormer.solvers.hals import HALS

# Networks that are small and often asked for, so each is loaded once.
ANY_RANK = "any-rank"
ANY_RANK_KL = "any-rank-kl"


def learned_start(
    name: str, device: torch.device, safeguard: str = "descent"
) -> LearnedInit | Turned:
    """Return the start that the network of this name makes.

    The start by a network for one rank is compared with the plain start after an iteration of HALS
    from each, and the better one counts; with `safeguard` "always" it is taken as it is.
    """
    network = zoo.load_model(name)
    if isinstance(network, AnyFactormer):
        return Turned(network.to(device))
    judge = _judge(safeguard, AfterIteration(HALS()))
    return LearnedInit(zoo.load_factormer(name).to(device), safeguard=judge)


Accelerating = zoo.Network | AnyRankNetwork | AnyFactormer


def accelerator(name: str, device: torch.device) -> Accelerating:
    """Return the accelerating network of this name; any-rank networks on a CPU are kept."""
    if not ships(name, use="accelerator"):
        names = ", ".join(["auto", "None", *names_for("accelerator")])
        raise ValueError(
            Sentence("{accelerator} is {given!r}; choose one of {names}", given=name, names=names)
        )
    if name in (ANY_RANK, ANY_RANK_KL) and device.type == "cpu":
        return any_rank(name)
    network = zoo.load_model(name)
    if isinstance(network, RankNetwork):
        raise ValueError(f"{name} chooses a rank; choose a network that accelerates")
    return network.to(device)


def check_special(name: str, V: Matrix, is_symmetric: bool) -> None:
    """Check that a network serves another loss, or penalties: those for any rank do, in memory."""
    plain = is_symmetric or isinstance(V, Blocks)
    if plain or not isinstance(accelerator(name, V.device), AnyRankNetwork):
        raise ValueError(
            Sentence(
                "{accelerator} is {given!r}, which serves only the plain squared error; with "
                "another loss, unknown entries, weights or penalties choose 'any-rank' or leave it "
                "out, and with symmetry or data beyond memory leave it out",
                given=name,
            )
        )


@cache
def any_rank(name: str = ANY_RANK) -> AnyRankNetwork:
    """A network for any rank on a CPU, loaded once."""
    return zoo.load_any_rank(name)


def accelerated(
    solver: Solver[Any], network: Accelerating, safeguard: str = "descent"
) -> Solver[Any]:
    """Return the solver, accelerated by the network.

    A proposal of a network for one rank is judged by where an iteration from it leads, and a plain
    run goes on beside the accelerated one. With `safeguard` "always", every proposal is taken, and
    there is no plain run.

    An any-rank network replaces the extrapolation in "her", "her-admm" and the solvers for other
    losses and penalties, and in "ahead" wherever no iterations are made ahead.
    """
    if isinstance(network, AnyFactormer):
        judge = _judge(safeguard, Descent())
        return Accelerated(solver, TurnedAccelerator(network), judge, n_accel=1)
    if not isinstance(network, AnyRankNetwork):
        judge = _judge(safeguard, AfterIteration(solver))
        learned = Accelerated(solver, LearnedAccelerator(network), judge)
        return learned if safeguard == "always" else Hedged(learned)
    if safeguard == "always":
        raise ValueError(
            Sentence(
                "safeguard='always' is for networks for one rank; one for any rank is judged at "
                "the end of each iteration: leave safeguard out"
            )
        )
    if isinstance(solver, Captured):  # which is a Restarted, too
        return Captured(solver.solver, AnyRank(network))
    if isinstance(solver, HER | Restarted):
        return Restarted(solver.solver, AnyRank(network))
    if isinstance(solver, Lookahead):
        return replace(solver, resting=AnyRank(network))
    return Restarted(solver, AnyRank(network))


def _judge(safeguard: str, default: Safeguard) -> Safeguard:
    return Counted(Always() if safeguard == "always" else default)


def ships(name: str, *, use: str) -> bool:
    """Whether a network of that name ships for that use, or it is a user's file."""
    if name.endswith(".safetensors"):
        return True
    card = zoo.models().get(zoo.present_name(name))
    return card is not None and card.use == use


def names_for(use: str) -> list[str]:
    """The networks that ship for that use."""
    return [name for name, card in zoo.models().items() if card.use == use]
