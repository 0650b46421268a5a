"""select_rank(): the number of components, chosen by a network that reads curves over ranks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from factormer.data import Blocks, Dense, Matrix, Observed, Sparse
from factormer.data.keywords import as_rank, as_seed
from factormer.data.observations import observe
from factormer.data.sample import some_rows
from factormer.data.sparse import Rows
from factormer.nn.rank import RankNetwork
from factormer.nn.zoo import load_rank
from factormer.problem.losses import Beta, as_loss
from factormer.problem.problem import Problem
from factormer.select.ranks.choice import Choice
from factormer.select.ranks.criteria import Criterion, criteria, cross_validated
from factormer.select.ranks.curves import Curves, curves
from factormer.select.ranks.fits import N_STARTS
from factormer.select.ranks.gaps import as_data, better_guess, first_guess, known_entries
from factormer.select.ranks.reason import exact_reason, reason_of
from factormer.select.ranks.spectrum import FLOOR, singular_values
from factormer.select.ranks.view import LARGE, view_of
from factormer.sentence import Sentence

MODEL = "rank"  # the shipped network
_TOP = 16  # the last rank that is tried by default
_MANY = 24  # ranks beyond which two starts of each are enough
_SAMPLE = 2e7  # entries of rows that are drawn where V is beyond memory, at most
_COPIES = 12  # of them, in float64, that may be made
_ROUNDS = 3  # of filling gaps and choosing again


def select_rank(
    V: Any,
    ranks: Any = None,
    *,
    loss: Any = "frobenius",
    mask: Any = None,
    weights: Any = None,
    missing: str | None = None,
    cross_validate: bool = False,
    random_state: int | None = 0,
    model: str | Path = MODEL,
    memory_limit: float | str | None = None,
) -> Choice:
    """Choose the number of components of V.

    V is factorized at all ranks from several random starts, as one batch. A pretrained network
    reads how errors, singular values, noise and the agreement of starts change from rank to rank,
    and gives each rank a probability. The classical rules stand beside it.

    Parameters
    ----------
    V : array-like, sparse matrix or tensor, (m, n)
        As in `factorize`; NaN is an entry that is not known. A V of more than 500 000 entries is
        factorized through its sketch.
    ranks : list of int, optional
        Ranks to choose from, at most min(m, n); by default 1 to 16. Those above the number of rows
        or columns that are not empty are left out.
    loss : str or float
        "frobenius" (2), or "kullback-leibler" (1) for counts. Under another β-divergence, ranks are
        compared by one of these: as counts where all entries are whole numbers.
    mask : array-like, (m, n), optional
        True where an entry of V is known.
    weights : array-like, (m, n) or (m,), optional
        As in `factorize`. An entry of weight 0 is not known; all others must have the same weight.
    missing : "zeros", optional
        Zeros of V are not known.
    cross_validate : bool
        Also hide entries, and see how well each rank predicts them. This takes many more fits.
    random_state : int, optional
        Seed of the starts and of random signs; None draws a new one.
    model : str or path
        The network: "rank", or the .safetensors file of one of your own (`factormer train`).
    memory_limit : float or str, optional
        As in `factorize`. Of a V beyond it, a random sample of rows is looked at, in one pass.

    Returns
    -------
    Choice
        `rank`, always a number; `clear`, whether to trust it; `probabilities`, `criteria`,
        `reason` in words, `table` and `plot()`.
    """
    seed = as_seed(random_state)
    seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
    network = load_rank(model)
    beta = _beta(loss)
    matrix = observe(V, mask=mask, weights=weights, missing=missing, memory_limit=memory_limit)
    if isinstance(matrix, Blocks):
        most = min(matrix.reader.room / (8 * _COPIES), _SAMPLE)
        matrix = some_rows(matrix, most, torch.Generator().manual_seed(seed))
    if len(matrix.shape) != 2:
        raise ValueError(f"V has shape {matrix.shape}; it must be one matrix, not a stack")
    if isinstance(matrix, Observed):
        values, known = known_entries(matrix)
        data = as_data(first_guess(values, known))
    else:
        values, known, data = None, None, matrix
    assert isinstance(data, Dense | Sparse)
    data, asked = _on_cpu(data), _asked(ranks, data)
    counts = beta == 1 or (beta != 2 and _is_whole(matrix))
    loss = 1.0 if counts else 2.0
    exact = _exact_rank(data)
    if exact is not None and exact in asked and known is None:
        return _certain(exact, asked)
    chosen = _chosen(network, data, asked, counts, seed)
    first = chosen.rank
    for _ in range(_ROUNDS if known is not None else 0):
        before = chosen.rank
        assert values is not None
        assert known is not None
        data = as_data(better_guess(values, known, before, loss, seed))
        chosen = _chosen(network, data, asked, counts, seed)
        if chosen.rank == before:
            break
    extra = {}
    if cross_validate:
        extra["cross-validation"] = cross_validated(matrix, asked, loss=loss, seed=seed)
    # What fills gaps speaks for the rank that it was made with: the first guess, which has none,
    # must agree.
    choice = _choice(network, chosen, asked, counts, extra, agreed=chosen.rank == first)
    if beta in (1, 2):
        return choice
    name = "Kullback–Leibler divergence" if counts else "squared error"
    return replace(choice, reason=f"{choice.reason} Ranks were compared under the {name}.")


class _Chosen(NamedTuple):
    """The curves, the probabilities of the ranks asked for, and the most probable."""

    found: Curves
    probabilities: dict[int, float]
    rank: int


@torch.no_grad()
def _chosen(
    network: RankNetwork, V: Dense | Sparse, asked: list[int], counts: bool, seed: int
) -> _Chosen:
    n_starts = N_STARTS if len(asked) <= _MANY else 2
    found = curves(V, asked, counts=counts, n_starts=n_starts, seed=seed)
    wanted = torch.tensor([rank in set(asked) for rank in found.ranks])
    p = network.probabilities(found.features, wanted)
    probabilities = {rank: float(p[rank - found.ranks[0]]) for rank in asked}
    return _Chosen(found, probabilities, max(asked, key=lambda rank: probabilities[rank]))


def _choice(
    network: RankNetwork,
    chosen: _Chosen,
    asked: list[int],
    counts: bool,
    extra: dict[str, Criterion],
    *,
    agreed: bool,
) -> Choice:
    found, probabilities, rank = chosen
    rules = criteria(found, asked, counts=counts) | extra
    shown = _shown(found, asked, counts)
    beside = [k for k in (rank - 1, rank + 1) if 1 <= k <= min(found.view.shape)]
    untried = [k for k in beside if k not in asked]
    sure = probabilities[rank] >= float(network.threshold)
    clear = len(asked) > 1 and not untried and sure and agreed
    reason = reason_of(rank, clear, probabilities, rules, shown, untried)
    return Choice(rank, clear, probabilities, reason, rules, shown)


def _shown(found: Curves, asked: list[int], counts: bool) -> dict[str, np.ndarray]:
    """The curves that people look at; singular values are those of V balanced for its noise."""
    fitted = found.spectra[1 if counts else 0]
    t = len(fitted.values)
    own = [min(k, t) - 1 for k in asked]
    beyond = [min(k, t - 1) for k in asked]
    s = found.spectra[1 if counts else -1]
    total = found.view.total
    return {
        "error": np.sqrt([found.rows[k].error / total for k in asked]),
        "svd_error": np.sqrt(fitted.tail[beyond].numpy() / total),
        "over_noise": (s.values[own] / s.noise[own]).numpy(),
        "stability": np.array([found.rows[k].stability[0] for k in asked]),
        "least_stability": np.array([found.rows[k].stability[1] for k in asked]),
    }


def _certain(rank: int, asked: list[int]) -> Choice:
    """The choice for data that one or two components make up."""
    probabilities = {k: float(k == rank) for k in asked}
    nothing = np.full(len(asked), np.nan)
    shown = {
        name: nothing.copy()
        for name in ("error", "svd_error", "over_noise", "stability", "least_stability")
    }
    rules = {"exact rank": Criterion(nothing.copy(), rank, "all singular values beyond are zero")}
    return Choice(rank, True, probabilities, exact_reason(rank), rules, shown)


def _beta(loss: Any) -> float:
    found = as_loss(loss)
    if isinstance(found, Beta):
        return found.beta
    raise ValueError(
        Sentence(
            "{loss} is {given!r}; a rank is chosen under 'frobenius' (2) or 'kullback-leibler' "
            "(1): take the one that is nearer",
            given=loss,
        )
    )


def _is_whole(V: Matrix) -> bool:
    """Whether all known entries are whole numbers."""
    if isinstance(V, Observed):
        values, known = known_entries(V)
        return bool((values[known] == values[known].round()).all())
    entries = V.by_rows.values if isinstance(V, Sparse) else V.entries  # pyright: ignore
    return bool((entries == entries.round()).all())


def _asked(ranks: Any, V: Dense | Sparse) -> list[int]:
    """The ranks to choose from, each once, the lowest first."""
    m, n = V.shape
    if not float(Problem(V, 1).mean()) > 0:
        raise ValueError("V has no entry above 0; there is nothing to choose components for")
    shape = view_of(V, torch.Generator().manual_seed(0)).shape if m * n <= LARGE else (m, n)
    most = min(shape)
    if ranks is None:
        return list(range(1, min(_TOP, most) + 1))
    is_list = isinstance(ranks, Iterable) and not isinstance(ranks, str)
    asked = sorted({as_rank(rank) for rank in (list(ranks) if is_list else [ranks])})
    if not asked:
        raise ValueError("ranks is empty; pass the ranks to choose from, such as range(1, 17)")
    if asked[-1] > min(m, n) or asked[0] > most:
        raise ValueError(
            f"ranks goes up to {asked[-1]}; V has {shape[0]} rows and {shape[1]} columns that are "
            f"not empty, and at most {most} components: choose from ranks up to {most}"
        )
    return [rank for rank in asked if rank <= most]


def _exact_rank(V: Dense | Sparse) -> int | None:
    """1 or 2 where V has that rank up to rounding, and so that nonnegative rank."""
    view = view_of(V, torch.Generator().manual_seed(0))
    if min(view.shape) == 1:
        return 1
    if not view.is_small:
        return None
    values = singular_values(view.block)
    number = int((values > FLOOR * values[0]).sum())
    return number if number <= 2 else None


def _on_cpu(V: Dense | Sparse) -> Dense | Sparse:
    if isinstance(V, Dense):
        return Dense(V.entries.cpu())
    starts, columns, values = (
        a.cpu() for a in (V.by_rows.starts, V.by_rows.columns, V.by_rows.values)
    )
    return Sparse(Rows(starts, columns, values, V.by_rows.n), V.scale)
