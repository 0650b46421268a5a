"""New data like V, for many factorizations of one matrix."""

from __future__ import annotations

import torch

from factormer.data import Dense, Matrix

RESAMPLES = ("poisson", "bootstrap", None)
_MOST = 2.0**53  # up to which float64 has all whole numbers


def check_resampling(sources: list[Matrix], resample: str | None) -> None:
    """Only dense data without gaps can be drawn anew."""
    for k, V in enumerate(sources if resample else ()):
        if not isinstance(V, Dense):
            raise ValueError(
                f"problem {k} is {type(V).__name__.lower()}; resample={resample!r} takes dense "
                "data without unknown entries"
            )


def resampled(V: Matrix, kind: str, seed: int) -> Matrix:
    """New data like V: "poisson" draws each entry with that mean, "bootstrap" rows, with repeats.

    On a GPU the numbers are drawn there.
    """
    assert isinstance(V, Dense)
    entries = V.entries
    rng = torch.Generator(entries.device).manual_seed(seed)
    if kind == "bootstrap":
        rows = torch.randint(len(entries), (len(entries),), generator=rng, device=entries.device)
        return Dense(entries[rows])
    if float(entries.max()) > _MOST:
        raise ValueError(
            f"V has {float(entries.max()):g} as its largest entry; resample='poisson' draws counts "
            f"with means of at most {_MOST:g}: divide V by a number that makes its entries counts"
        )
    return Dense(torch.poisson(entries, generator=rng))
