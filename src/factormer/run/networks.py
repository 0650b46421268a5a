"""Networks by their name: as starts, and inside solvers as accelerators."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import torch

from factormer.accelerate.anyrank import AnyRank
from factormer.accelerate.base import Accelerated, Restarted
from factormer.accelerate.cuda_graph import Captured
from factormer.accelerate.her import HER
from factormer.accelerate.learned import LearnedAccelerator, LearnedInit
from factormer.accelerate.lookahead import Lookahead
from factormer.nn import zoo
from factormer.nn.anyrank import AnyRankNetwork
from factormer.nn.rank import RankNetwork
from factormer.solvers.base import Solver

ANY_RANK = "any-rank"  # which is small, and asked for often


def learned_start(name: str, device: torch.device) -> LearnedInit:
    """The start by the network of that name."""
    return LearnedInit(zoo.load_factormer(name).to(device))


def accelerator(name: str, device: torch.device) -> zoo.Network | AnyRankNetwork:
    """The network of that name, to accelerate; small ones that ship are loaded once."""
    if not ships(name, use="accelerator"):
        names = ", ".join(["auto", "None", *names_for("accelerator")])
        raise ValueError(f"accelerator is {name!r}; choose one of {names}")
    if name == ANY_RANK and device.type == "cpu":
        return _shipped(name)
    network = zoo.load_model(name)
    if isinstance(network, RankNetwork):
        raise ValueError(f"{name} chooses a rank; choose a network that accelerates")
    return network.to(device)


@cache
def _shipped(name: str) -> AnyRankNetwork:
    return zoo.load_any_rank(name)


def accelerated(solver: Solver[Any], network: zoo.Network | AnyRankNetwork) -> Solver[Any]:
    """The solver with that network.

    An any-rank network replaces the extrapolation in "her" and "her-admm", and in "ahead" wherever
    no iterations are made ahead.
    """
    if not isinstance(network, AnyRankNetwork):
        return Accelerated(solver, LearnedAccelerator(network))
    if isinstance(solver, HER):
        return Restarted(solver.solver, AnyRank(network))
    if isinstance(solver, Lookahead):
        return replace(solver, resting=AnyRank(network))
    if isinstance(solver, Captured):
        return Captured(solver.solver, AnyRank(network))
    return Restarted(solver, AnyRank(network))


def ships(name: str, *, use: str) -> bool:
    """Whether a network of that name ships for that use, or it is a user's file."""
    if name.endswith(".safetensors"):
        return True
    card = zoo.models().get(name)
    return card is not None and card.use == use


def names_for(use: str) -> list[str]:
    """The networks that ship for that use."""
    return [name for name, card in zoo.models().items() if card.use == use]
