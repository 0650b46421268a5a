"""How many threads a client's factorizations may use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from factormer.kernels.threads import limited


@contextmanager
def using(count: int) -> Iterator[None]:
    """Use so many threads in `factorize_many`, which takes as many as torch has."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with limited(count):
            yield
    finally:
        torch.set_num_threads(before)
