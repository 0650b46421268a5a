"""What can be said of recorded iterations without a GPU; tests/test_gpu.py has the rest."""

import torch

from factormer.accelerate.cuda_graph import StandIn
from factormer.data import LowRank
from factormer.problem.problem import Problem


def low(seed: int, width: int) -> LowRank:
    rng = torch.Generator().manual_seed(seed)
    U, Z = (torch.rand(k, width, generator=rng).double() for k in (9, 7))
    return LowRank(U, Z, torch.rand((), generator=rng).double())


def test_a_stand_in_has_the_numbers_of_whom_it_plays(rng):
    first = low(0, 5)
    stand = StandIn.of(Problem(first, 3), first, 6)
    X, Y = (torch.rand(k, 3, generator=rng).double() for k in (7, 9))
    memory = stand.V.U.data_ptr()
    for V in (first, low(1, 6), low(2, 4), first):
        played = stand.playing(V)
        assert played is stand.problem
        assert stand.V.U.data_ptr() == memory
        torch.testing.assert_close(played.V @ X, V @ X)
        torch.testing.assert_close(played.V.T @ Y, V.T @ Y)
        torch.testing.assert_close(played.V.sq_norm(), V.sq_norm())
