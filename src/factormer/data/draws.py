"""Random numbers that any processor can draw: number k of a seed is a function of the two.

So a start is the same on a CPU and on a GPU, alone and in a batch.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_STEP, _APART = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1342543DE82EF95)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S40 = (np.uint64(k) for k in (30, 27, 31, 40))


def mixed(x: np.ndarray) -> np.ndarray:
    """The finalizer of SplitMix64 (Steele et al., 2014), in place on uint64."""
    x += _STEP
    x ^= x >> _S30
    x *= _FIRST
    x ^= x >> _S27
    x *= _SECOND
    x ^= x >> _S31
    return x


def uniform(seed: int, shape: tuple[int, ...]) -> Tensor:
    """The first numbers of a seed, uniform from 0 to 1, in float32."""
    x = np.arange(np.prod(shape, dtype=np.int64), dtype=np.uint64)
    x *= _APART
    x += np.uint64(seed % 2**64)
    drawn = (mixed(x) >> _S40).astype(np.float32)
    drawn *= np.float32(2**-24)
    return torch.from_numpy(drawn.reshape(shape))


def following(seed: int) -> int:
    """The seed of the next stream, of 63 bits: `mixed`, of one number."""
    x = (seed + int(_STEP)) % 2**64
    x = (x ^ x >> 30) * int(_FIRST) % 2**64
    x = (x ^ x >> 27) * int(_SECOND) % 2**64
    return (x ^ x >> 31) >> 1


def advance(rng: torch.Generator) -> int:
    """The seed that a generator stands at; it moves on to the next stream."""
    seed = rng.initial_seed()
    rng.manual_seed(following(seed))
    return seed
