"""The start that shares have by default, `starts.Vertices`, for a stack of matrices at once."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from factormer.data import Normal
from factormer.data.factors import Factors
from factormer.problem.penalties import Penalties
from factormer_lab.train.anyrank.problems import leading_svd
from factormer_lab.train.anyrank.proximal import half_step

_GAIN = 1e-6  # by which an exchange has to enlarge the volume
_ROUNDS = 6  # of exchanges
_STEPS = 200  # of ADMM, by which the shares of the rows are found


@torch.no_grad()
def cornered(V: Float[Tensor, "b m n"], r: int, on_w: Penalties, rng: torch.Generator) -> Factors:
    """H holds r rows of each V whose simplex is as large as exchanges make it; W has shares."""
    chosen = corners(_points(V, r, rng))
    H = V.gather(1, chosen[..., None].expand(-1, -1, V.shape[-1])).mT.contiguous()
    W = V.new_full((*V.shape[:2], r), 1 / r)
    normal = Normal(V @ H, H.mT @ H)
    return Factors(half_step(normal, W, torch.zeros_like(W), on_w, _STEPS)[0], H)


def _points(V: Float[Tensor, "b m n"], r: int, rng: torch.Generator) -> Float[Tensor, "b m r"]:
    """The rows of V in the r − 1 directions of largest variance, of equal size; and 1 each."""
    U, S, _ = leading_svd(V, r, rng)
    X = U * S[:, None]
    X = X - X.mean(dim=1, keepdim=True)
    _, Q = torch.linalg.eigh(X.mT @ X)
    X = X @ Q.flip(-1)[..., : r - 1]
    X = X / X.abs().amax(dim=1, keepdim=True).clamp(min=1e-30)
    return torch.cat([torch.ones_like(X[..., :1]), X], dim=-1)


def corners(Z: Float[Tensor, "b m r"]) -> Int[Tensor, "b r"]:
    """Rows of each Z with the largest |det|, up to exchanges of one of them.

    With M the rows chosen, |(Z M⁻¹)_ik| is how many times larger |det M| is with row i in place k.
    """
    left, found, r = Z.clone(), [], Z.shape[-1]
    for _ in range(r):  # each the farthest from the span of those before it
        i = left.square().sum(dim=-1).argmax(dim=-1)  # (b)
        found.append(i)
        q = torch.nn.functional.normalize(_row(left, i), dim=-1, eps=1e-30)  # (b, 1, r)
        left = left - (left @ q.mT) * q
    chosen = torch.stack(found, dim=1)
    identity = 1e-12 * torch.eye(r, dtype=Z.dtype, device=Z.device)
    for _ in range(_ROUNDS):
        for k in range(r):
            M = Z.gather(1, chosen[..., None].expand(-1, -1, r))
            sizes = (Z @ torch.linalg.inv_ex(M + identity).inverse[..., k, None]).abs()[..., 0]
            best = sizes.argmax(dim=-1)
            larger = sizes.amax(dim=-1) > 1 + _GAIN
            chosen[:, k] = torch.where(larger, best, chosen[:, k])
    return chosen


def _row(Z: Float[Tensor, "b m r"], i: Int[Tensor, " b"]) -> Float[Tensor, "b 1 r"]:
    return Z.gather(1, i[:, None, None].expand(-1, 1, Z.shape[-1]))
