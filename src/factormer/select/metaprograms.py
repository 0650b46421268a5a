"""metaprograms(): programs that several samples share, such as those of cells of several donors.

Each sample is factorized on its own, at several ranks and on random halves of its rows. Programs
that the halves agree on are kept, and those of different samples that are alike are one
meta-program.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from factormer.data import draws
from factormer.data.frame import Labelled, frame_of
from factormer.data.intake import is_sparse
from factormer.data.keywords import as_rank, as_seed, check_limits
from factormer.data.observations import observe
from factormer.functions import factorize_many
from factormer.many.jobs import COMMON
from factormer.run.hints import check_shared, hinted
from factormer.run.request import Request, check_count
from factormer.run.result import Status
from factormer.run.settle import coefficients
from factormer.run.watch import counted
from factormer.select.match import clustered, units
from factormer.sentence import Sentence

_STABLE = 0.7  # of a component at a rank, from which it is a program of its sample
_FEWEST = 10  # rows of a sample
_RANGE = (0.2, 0.95)  # of cosines, where programs are cut into meta-programs
_APART = (
    0.95  # of the pairs of programs of one sample, which differ: the cut is above their cosines
)
_CLEAR = 0.1  # cosines over which a number of meta-programs must stay the same to be clear


class Programs(NamedTuple):
    """Programs of one sample, at the rank at which most components are stable."""

    rank: int
    H: Float[np.ndarray, "n p"]  # columns of length 1
    stability: Float[np.ndarray, " p"]


@dataclass(frozen=True, eq=False, repr=False)
class MetaPrograms:
    """Programs that samples share, and the samples that have each.

    Attributes
    ----------
    H : array, (n, k)
        The meta-programs over the columns of V, each of length 1; those of most samples come first.
    cosines : array, (k, s)
        How much the program of each sample is like the meta-program; NaN where it has none.
    score : array, (k,)
        Mean silhouette of the programs of each: 1 where samples have the very same program.
    clear : bool
        Whether the number of meta-programs is clear: the same for cuts over a wide range.
    cuts : (float, float)
        The range: between programs that are joined and those that are not, in cosines.
    samples, features : list of str
        The names of the samples, and of the columns of V.
    programs : list of Programs
        What each sample was found to have, at which rank, and how stable.
    alone : list of (str, array)
        Programs of fewer samples than `min_samples`: the sample, and the program.
    status : Status or None
        Why fewer replicates were made than asked for, if so.
    """

    H: Float[np.ndarray, "n k"]
    cosines: Float[np.ndarray, "k s"]
    score: Float[np.ndarray, " k"]
    clear: bool
    cuts: tuple[float, float]
    samples: list[str]
    features: list[str]
    programs: list[Programs]
    alone: list[tuple[str, Float[np.ndarray, " n"]]]
    status: Status | None = None
    loss: Any = field(default="frobenius", repr=False)

    @property
    def reason(self) -> str:
        """How many meta-programs there are and how sure that is, in a sentence or two."""
        k, (low, high) = len(self.score), self.cuts
        text = (
            f"{_many(k, 'meta-program')} in {_many(len(self.samples), 'sample')}, and "
            f"{_many(len(self.alone), 'program')} of fewer samples than asked for. "
        )
        if self.clear:
            return f"{text}The number is the same for all cuts from cosine {low:.2f} to {high:.2f}."
        return (
            f"{text}The number is not clear: it holds for cuts from cosine {low:.2f} to {high:.2f} "
            "alone, so programs that are nearly alike may be one or two."
        )

    def genes(self, n: int = 20) -> dict[str, list[str]]:
        """The features that set each meta-program apart, the most telling first."""
        check_count("n", n)
        scores = specificity(self.H)
        best = np.argsort(-scores, axis=0, kind="stable")[:n]
        return {
            name: [self.features[i] for i in best[:, c] if scores[i, c] > 0]
            for c, name in enumerate(self.names)
        }

    @property
    def names(self) -> list[str]:
        """A name for each meta-program, by its place."""
        return [f"meta-program {c + 1}" for c in range(len(self.score))]

    def columns(self) -> dict[str, np.ndarray]:
        """The table as arrays: meta-program, samples that have it, mean cosine, and score."""
        return {
            "metaprogram": np.arange(1, len(self.score) + 1),
            "samples": np.isfinite(self.cosines).sum(axis=1),
            "cosine": np.nanmean(self.cosines, axis=1) if len(self.score) else np.zeros(0),
            "score": self.score,
        }

    def table(self) -> Any:
        """A pandas DataFrame with a row for each meta-program."""
        return frame_of(self.columns())

    def usage(self, V: Any) -> Float[np.ndarray, "m k"]:
        """How much each row of V uses each meta-program: the coefficients that fit V best."""
        matrix = observe(V)
        problem = Request.of(matrix, len(self.score), loss=self.loss).problem
        H = torch.from_numpy(self.H).to(matrix.device, matrix.dtype)
        return coefficients(matrix, H, problem.loss, problem.on_w).W.numpy(force=True)

    def plot(self, ax: Any = None) -> Any:
        """Draw which samples have which meta-program, and how alike it is; return the axes."""
        from factormer.select.pictures import axes_of

        k, s = self.cosines.shape
        ax = axes_of(ax, wide=0.4 * s + 2, high=0.3 * k + 1.6)
        image = ax.imshow(self.cosines, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        ax.figure.colorbar(image, ax=ax, label="cosine to the meta-program")
        ax.set_xticks(range(s), self.samples, rotation=45, ha="right")
        ax.set_yticks(
            range(k), [f"{name}  {x:.2f}" for name, x in zip(self.names, self.score, strict=True)]
        )
        ax.set_title("score beside its name; blank: not in this sample")
        return ax

    def __repr__(self) -> str:
        sure = "clear" if self.clear else "not clear"
        return (
            f"<MetaPrograms: {len(self.score)} of {len(self.samples)} samples, {sure}, "
            f"{len(self.alone)} beside them>"
        )


@hinted
def metaprograms(
    V: Any,
    groups: Any = None,
    *,
    ranks: Iterable[int] = range(4, 10),
    n_runs: int = 10,
    min_samples: int = 2,
    time_limit: float | None = None,
    random_state: int | None = 0,
    progress: bool = False,
    **options: Any,
) -> MetaPrograms:
    """Find the programs that several samples share, and which samples have each.

    Every sample is factorized at every rank, on `n_runs` random halves of its rows. A sample is
    taken at the rank that has the most components on which the halves agree (a stability of 0.7 or
    more, see `consensus`), and these are its programs. Programs of different samples are joined
    while they are alike; those that no cut between two cosines joins stay apart.

    Parameters
    ----------
    V : list of matrices, or matrix (m, n)
        Samples with the same columns (genes), such as cells × genes; or one matrix with `groups`.
    groups : array-like, (m,), optional
        The sample of each row of V.
    ranks : list of int
        Ranks to try for each sample; those that are too high for the half of a sample are left out.
    n_runs : int
        Random halves of each sample, at least 2.
    min_samples : int
        In how many samples a program must be to be a meta-program.
    time_limit : float, optional
        Seconds for all; replicates that are done by then count, at least 2. So it is after Ctrl-C.
    random_state : int, optional
        Seed of halves and starts.
    progress : bool
        Show a bar.
    **options
        Other keywords of `factorize_many`: loss, max_iter, tol, solver, …

    Returns
    -------
    MetaPrograms
        `H`, `cosines` (which samples have each), `score`, `clear`, `reason`; `genes()`,
        `table()`, `usage(V)`, `plot()`.
    """
    check_shared("metaprograms", options, COMMON)
    check_count("n_runs", n_runs, 2)
    check_count("min_samples", min_samples)
    check_limits(1, 0.0, time_limit)
    names, samples, features = _samples(V, groups)
    asked = sorted({as_rank(rank) for rank in ranks})
    most = [min(_half(X.shape[0]), X.shape[1]) for X in samples]
    if not asked or asked[0] > min(most):
        raise ValueError(
            f"ranks is {asked}, and half of sample {names[int(np.argmin(most))]!r} has at most "
            f"{min(most)} components: pass lower ranks too, or leave the sample out"
        )
    seed = as_seed(random_state)
    seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
    runs, status = _runs(samples, asked, n_runs, seed, time_limit, progress, options)
    programs = [_robust(of_sample) for of_sample in runs]
    found = _joined(programs, min_samples)
    alone = [(names[s], h) for s, h in found.pop("alone")]
    return MetaPrograms(
        **found,
        samples=names,
        features=features,
        programs=programs,
        alone=alone,
        status=status,
        loss=options.get("loss", "frobenius"),
    )


def specificity(H: Float[np.ndarray, "n r"]) -> Float[np.ndarray, "n r"]:
    """Score how far each feature sets each component apart; 0 where another has more of it.

    The score is p · log(p / q): p is the feature's share of the component, q the largest of its
    shares of other components (of one component alone, p).
    """
    total = H.sum(axis=0)
    share = H / np.where(total > 0, total, 1.0)
    if share.shape[1] < 2:
        return share
    ordered = np.sort(share, axis=1)
    others = np.where(share == ordered[:, -1:], ordered[:, -2:-1], ordered[:, -1:])
    floor = np.finfo(np.float64).tiny
    ratio = np.log(np.maximum(share, floor)) - np.log(np.maximum(others, 1e-12))
    return np.where(share > others, share * ratio, 0.0).clip(min=0)


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _samples(V: Any, groups: Any) -> tuple[list[str], list[Any], list[str]]:
    """The names of the samples, their matrices, and the names of the features."""
    if groups is not None:
        names, samples = _split(_plain(V), np.asarray(groups).astype(str))
        given = [V]
    elif isinstance(V, list | tuple) and len(V) > 1:
        names, samples = [f"sample {k + 1}" for k in range(len(V))], [_plain(X) for X in V]
        given = list(V)
    else:
        raise ValueError(
            "V is not a list of two samples or more; pass a list of matrices with the same "
            "columns, or one matrix and the sample of each row, groups="
        )
    for name, X in zip(names, samples, strict=True):
        if X.shape[1:] != samples[0].shape[1:]:
            raise ValueError(
                f"{name} has {X.shape[-1]} columns, and {names[0]} has {samples[0].shape[-1]}; all "
                "samples must have the same ones, in the same order"
            )
        if X.shape[0] < _FEWEST:
            raise ValueError(
                f"sample {name!r} has {_many(X.shape[0], 'row')}; programs are found in random "
                f"halves of {_FEWEST} rows or more: leave it out"
            )
    features = [_features(X, samples[0].shape[1]) for X in given]
    if any(own != features[0] for own in features):
        other = names[[own != features[0] for own in features].index(True)]
        raise ValueError(
            f"{other} has other columns than {names[0]}; give all samples the same ones, in the "
            "same order: frame[genes]"
        )
    return names, samples, features[0]


def _split(V: Any, groups: np.ndarray) -> tuple[list[str], list[Any]]:
    """The samples of a matrix, in the order in which they come."""
    if groups.shape != V.shape[:1]:
        raise ValueError(
            f"groups has shape {groups.shape}; it must name the sample of each of the "
            f"{V.shape[0]} rows of V"
        )
    names = list(dict.fromkeys(groups.tolist()))
    if len(names) < 2:
        raise ValueError(f"groups names one sample, {names[0]!r}; it must name two or more")
    return names, [V[np.flatnonzero(groups == name)] for name in names]


def _features(X: Any, n: int) -> list[str]:
    """The names of the columns of a DataFrame; their numbers where there are no names."""
    labels = Labelled.of(X)
    if labels is None:
        return [f"feature {j + 1}" for j in range(n)]
    return [str(name) for name in labels.columns]


def _plain(X: Any) -> Any:
    """A matrix whose rows can be taken."""
    if is_sparse(X):
        return X.tocsr()
    return X.to_numpy() if Labelled.of(X) is not None else np.asarray(X)


def _half(m: int) -> int:
    return (m + 1) // 2


_Runs = list[dict[int, list[np.ndarray]]]  # of each sample, H of all replicates by rank


def _runs(
    samples: Sequence[Any],
    ranks: list[int],
    n_runs: int,
    seed: int,
    time_limit: float | None,
    progress: bool,
    options: dict[str, Any],
) -> tuple[_Runs, Status | None]:
    """H of every sample, rank and replicate; a replicate of all samples is one batch."""
    until = None if time_limit is None else time.perf_counter() + float(time_limit)
    with_start: dict[str, Any] = {"init": "random"} | options
    found: _Runs = [{rank: [] for rank in ranks} for _ in samples]
    rng = np.random.default_rng([seed])
    with counted(progress, n_runs) as count:
        for run in range(n_runs):
            halves = [X[np.sort(rng.permutation(X.shape[0])[: _half(X.shape[0])])] for X in samples]
            left = None if until is None else max(until - time.perf_counter(), 1e-9)
            jobs = [(s, k) for s, X in enumerate(halves) for k in ranks if k <= min(X.shape)]
            results = factorize_many(
                [halves[s] for s, _ in jobs],
                [k for _, k in jobs],
                grid=False,
                random_state=draws.following(seed + run),
                time_limit=left,
                **with_start,
            )
            if results.status is not None:
                if run >= 2:
                    return found, results.status
                if results.status is Status.INTERRUPTED:
                    raise KeyboardInterrupt
                raise TimeoutError(
                    Sentence(
                        "{time_limit} is {given}, and {run} of {n_runs} replicates were done by "
                        "then; 2 are needed: allow more time",
                        given=time_limit,
                        run=run,
                        n_runs=n_runs,
                    )
                )
            for (s, k), result in zip(jobs, results, strict=True):
                found[s][k].append(result.factors.H.double().numpy(force=True))
            count(1)
    return found, None


def _robust(runs: dict[int, list[np.ndarray]]) -> Programs:
    """The stable components of a sample, at the lowest of the ranks that have the most of them."""
    best: Programs | None = None
    for rank, each in runs.items():
        if not each:
            continue
        found = clustered(np.stack(each))
        stable = found.stability >= _STABLE
        if best is None or stable.sum() > len(best.stability):
            best = Programs(rank, found.centres[:, stable], found.stability[stable])
    assert best is not None
    return best


def _joined(programs: list[Programs], min_samples: int) -> dict[str, Any]:
    """Programs that are alike as one, those of most samples first; and those that stay alone.

    Trees are by average linkage of cosine distances, in which two programs of one sample are as far
    apart as can be. The cut is above the cosines of those, which are known to differ, and there in
    the middle of the widest range of cosines in which the number of meta-programs is the same.
    """
    X = units(np.concatenate([p.H for p in programs], axis=1))
    of = np.repeat(np.arange(len(programs)), [p.H.shape[1] for p in programs])
    if not len(of):
        raise ValueError(
            "no sample has a program that its random halves agree on; pass more rows, other ranks, "
            "or features that vary more"
        )
    far = (1 - X.T @ X).clip(0, 1)
    low, high = _RANGE
    pairs = (of[:, None] == of) & ~np.eye(len(of), dtype=bool)
    if pairs.any():
        low = min(max(low, float(np.quantile(1 - far[pairs], _APART))), high - _CLEAR)
    far[pairs] = 1.0
    np.fill_diagonal(far, 0.0)
    label, cuts = np.zeros(1, int), (low, high)
    if len(of) > 1:
        tree = linkage(squareform(far, checks=False), "average")
        ends = np.concatenate([[low], np.sort(np.clip(1 - tree[:, 2], low, high)), [high]])
        widest = int(np.diff(ends).argmax())
        cuts = (float(ends[widest]), float(ends[widest + 1]))
        label = fcluster(tree, 1 - sum(cuts) / 2, "distance") - 1
    members = [np.flatnonzero(label == c) for c in range(label.max() + 1)]
    shared = [at for at in members if len(np.unique(of[at])) >= min_samples]
    silhouettes = _silhouettes(far, members)
    shared.sort(key=lambda at: (-len(np.unique(of[at])), -silhouettes[at].mean()))
    H = np.zeros((len(X), len(shared)))
    cosines = np.full((len(shared), len(programs)), np.nan)
    for c, at in enumerate(shared):
        H[:, c] = units(np.median(X[:, at], axis=1, keepdims=True))[:, 0]
        for k in at:
            cosines[c, of[k]] = np.fmax(cosines[c, of[k]], X[:, k] @ H[:, c])
    taken = set(np.concatenate([*shared, np.zeros(0, int)]).tolist())
    return {
        "H": H,
        "cosines": cosines,
        "score": np.array([silhouettes[at].mean() for at in shared]),
        "clear": cuts[1] - cuts[0] >= _CLEAR,
        "cuts": cuts,
        "alone": [(int(of[k]), X[:, k]) for k in range(len(of)) if k not in taken],
    }


def _silhouettes(
    far: Float[np.ndarray, "p p"], members: list[Int[np.ndarray, " q"]]
) -> Float[np.ndarray, " p"]:
    """The silhouette of each program; 0 for one that is alone."""
    to = np.stack([far[:, at].mean(axis=1) for at in members], axis=1)  # (p, clusters)
    values = np.zeros(len(far))
    for c, at in enumerate(members):
        if len(at) > 1:
            within = to[at, c] * len(at) / (len(at) - 1)
            nearest = np.delete(to[at], c, axis=1).min(axis=1, initial=1.0)
            values[at] = (nearest - within) / np.maximum(np.maximum(nearest, within), 1e-12)
    return values
