"""Several devices by name, and matrices that move to one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from factormer.data.base import Matrix
from factormer.data.dense import Dense
from factormer.data.intake import as_device
from factormer.data.observed import Observed
from factormer.data.sparse import Rows, Sparse
from factormer.sentence import Sentence

GPUS = "gpus"  # all that torch sees


def as_devices(given: Any) -> list[torch.device]:
    """The devices that are asked for: one by its name, several by a list, all GPUs, or none.

    A GPU that is named twice counts once: its memory and its chip are there once.
    """
    if given is None:
        return []
    if isinstance(given, str) and given == GPUS:
        count = torch.cuda.device_count()
        if not count:
            raise ValueError(
                Sentence(
                    "{device} is {all!r}, and torch finds no GPU on this machine; choose 'cpu', or "
                    "leave {device} out",
                    all=GPUS,
                )
            )
        return [torch.device("cuda", k) for k in range(count)]
    if isinstance(given, str | torch.device):
        return [as_device(given)]
    names = list(given) if isinstance(given, list | tuple) else []
    if not names or not all(isinstance(name, str | torch.device) for name in names):
        raise ValueError(
            Sentence(
                "{device} is {given!r}; it must be the name of a device such as 'cuda', a list of "
                "such names, or {all!r} for all GPUs",
                given=given,
                all=GPUS,
            )
        )
    found = [as_device(name) for name in names]
    first = {device: k for k, device in reversed(list(enumerate(found)))}
    return [d for k, d in enumerate(found) if d.type != "cuda" or first[d] == k]


def moved(V: Matrix, device: torch.device) -> Matrix:
    """Return the matrix on a device."""
    if V.device == device:
        return V
    if isinstance(V, Dense):
        rows, cols, scale = (None if t is None else t.to(device) for t in (V.rows, V.cols, V.scale))
        return Dense(V.stored.to(device), rows, cols, scale, V.precision)
    if isinstance(V, Sparse):
        at = V.by_rows
        there = (a.to(device) for a in (at.starts, at.columns, at.values))
        return replace(V, by_rows=Rows(*there, n=at.n))
    if isinstance(V, Observed):
        inside = moved(V.V, device)
        assert isinstance(inside, Dense | Sparse)
        return Observed(inside, V.weights.to(device))
    raise ValueError(
        Sentence(
            "V is a {kind}, which stays where it is: leave {device} out, or name the one that it "
            "is on, {there!r}",
            kind=type(V).__name__,
            there=str(V.device),
        )
    )
