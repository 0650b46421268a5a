"""Several parts in one reading, and runs that share their passes."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from factormer.data import parts
from factormer.data.factors import Factors
from factormer.data.outofcore import blocks_of
from factormer.data.sources import Source
from factormer.data.together import Together, in_turns

M, N = 30, 12


def added(VH, W):
    return W + VH


@pytest.mark.parametrize("kind", [torch.from_numpy, scipy.sparse.csr_array])
@torch.no_grad()
def test_parts_together_are_those_one_by_one(kind, rng):
    entries = np.random.default_rng(0).random((M, N))
    block, sums = (
        kind(entries),
        torch.from_numpy(np.stack([entries.sum(1), (entries**2).sum(1)], 1)),
    )
    W, H, X = (torch.rand(size, k, generator=rng).double() for size, k in ((M, 3), (N, 3), (N, 2)))
    listed = [
        (parts.Times(X), ()),
        (parts.Updated(H, added, 2.0), (sums, W)),
        (parts.TurnedTimes(), (W,)),
        (parts.Updated(X, added, 0.5), (sums, W[:, :2].clone())),
        (parts.Misfit(H, 2.0), (sums, W)),
        (parts.Both(X), ()),
        (parts.Gram(X), ()),
        (parts.Nothing(), ()),
    ]
    together = Together(tuple(p for p, _ in listed), tuple(len(rows) for _, rows in listed))
    joined, summed = together(block, *(F for _, rows in listed for F in rows))
    apart = list(together.apart(list(joined), list(summed)))
    for (part, rows), found in zip(listed, apart, strict=True):
        expected = part(block, *rows)
        for some, other in zip(found, expected, strict=True):
            assert len(some) == len(other)
            for F, G in zip(some, other, strict=True):
                torch.testing.assert_close(F, G, rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_a_pass_is_made_once_all_wait_for_one(rng):
    V = torch.rand(M, N, generator=rng).double()
    source = Source(lambda a, b: V[a:b].numpy(), (M, N), np.dtype(float), "list", float(M * N))
    B = blocks_of(source, 3000)
    B.total()
    H = torch.rand(N, 2, generator=rng).double()

    def several(count):
        def call(own):
            return [own @ H.clone() for _ in range(count)]

        return call

    def updates(own):
        W = torch.rand(M, 2, dtype=torch.float64)
        return own.updated(Factors(W, H), added)

    def single(own):
        return own.to(torch.float32) @ H.float()

    found: dict[int, Any] = dict(
        in_turns(B, [several(1), several(3), updates, single, lambda own: own.sq_norm()])
    )
    assert B.record.passes == 1 + 3 + 1  # of sums, of three in turn, and of another precision
    assert len(found) == 5
    assert len(found[1]) == 3
    torch.testing.assert_close(found[1][2], V @ H)
    torch.testing.assert_close(found[2].VH, V @ H)
    torch.testing.assert_close(found[3], V.float() @ H.float())
    assert float(found[4]) == pytest.approx(float(V.square().sum()))


def test_an_interruption_leaves_what_was_not_begun(rng):
    V = torch.rand(M, N, generator=rng).double()
    source = Source(lambda a, b: V[a:b].numpy(), (M, N), np.dtype(float), "list", float(M * N))
    B = blocks_of(source, 3000)
    B.total()

    def interrupts(own):
        raise KeyboardInterrupt

    def waits(own):
        try:
            return own.both(torch.ones(N, 1).double())
        except KeyboardInterrupt:
            return "as far as it came"

    found = []
    with pytest.raises(KeyboardInterrupt):
        found.extend(in_turns(B, [waits, interrupts, waits]))  # which keeps what came before
    assert found == [(0, "as far as it came"), (2, "as far as it came")]
    assert B.record.passes == 1
