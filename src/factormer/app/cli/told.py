"""Print and write the answers of `factormer fit` once its ranks are done."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

# The data of the runs of --repeats, in words.
_ON = {
    "poisson": " on counts drawn anew",
    "bootstrap": " on samples drawn anew",
    "none": " on the same data",
}
_SPECTRAL = ("band", "energy", "frequency", "wavelength", "wavenumber")


def print_shares(data: Any, options: Any, *, as_json: bool) -> None:
    """Warn where shares are of the points of a spectrum, and not of pixels or samples."""
    for own, other, asked, what, side, instead in (
        (data.rows, data.columns, options.regularize_w, "rows", "w", "h"),
        (data.columns, data.rows, options.regularize_h, "columns", "h", "w"),
    ):
        is_spectrum = own.noun in _SPECTRAL and other.noun not in _SPECTRAL
        if is_spectrum and other.kind != "line" and _has_shares(asked):
            others = "pixels" if other.kind == "image" else other.nouns
            print(
                f"{what} are {own.nouns}: with --regularize-{side} simplex the shares of each "
                f"{own.noun} sum to one; for shares of {others} add --transpose or use "
                f"--regularize-{instead} simplex",
                file=sys.stderr if as_json else sys.stdout,
            )


def _has_shares(asked: Any) -> bool:
    """Whether rows of a factor have a sum."""
    return any(re.fullmatch("simplex(:[^:]*(:rows)?)?", term.lower()) for term in asked)


def print_volume(asked: Any, options: Any, rank: int) -> None:
    """Say the numbers that a volume asked for without any was given, if one was."""
    for side in "wh":
        pair = (getattr(which, f"regularize_{side}") for which in (asked, options))
        for before, after in zip(*pair, strict=True):
            if before != after:
                print(
                    f"--regularize-{side} volume: its weight and δ come from a fit of rank {rank} "
                    f"without it; the same as --regularize-{side} {after}"
                )


@contextmanager
def compiling() -> Iterator[list[float]]:
    """Seconds that numba compiles for, as one number that is there afterwards if it did."""
    spent: list[float] = []
    try:
        from numba.core.event import install_timer
    except ImportError:  # nothing is compiled
        yield spent
        return
    with install_timer("numba:compile", spent.append):
        yield spent


def print_results(results: list[Any], loss: str | float, compiled: float = 0.0) -> None:
    """Print the error of each rank: that of the loss that was minimised, and what it explains.

    `compiled` are seconds of compiling, which the first fit waits for.
    """
    from factormer.problem.losses import as_loss

    is_quadratic = as_loss(loss).is_quadratic
    columns = "      RMSE  explained   SVD bound" if is_quadratic else "divergence  explained"
    print(f"  rank  {columns}  iterations   seconds  status")
    for r in results:
        if is_quadratic:
            bound = "–" if r.svd_rmse is None else f"{r.svd_rmse:.5g}"
            errors = f"{r.rmse:10.5g}  {_short_of_all(r.explained):8.2%}  {bound:>10}"
        else:
            numbers = (r.divergence, ".5g"), (_short_of_all(r.explained_divergence), ".2%")
            mean, share = ("–" if x is None else f"{x:{how}}" for x, how in numbers)
            errors = f"{mean:>10}  {share:>9}"
        print(
            f"  {r.rank:4d}  {errors}  {r.iterations:10d}"
            f"  {r.seconds:8.2f}  {r.status.lower().replace('_', ' ')}"
        )
    if compiled >= 1:
        print(
            f"  the first fit waited for compiling ({compiled:.0f} s, which its seconds may "
            "include); later ones do not, as what was compiled is kept"
        )


def _short_of_all(share: Any) -> Any:
    """A share that two digits of a percentage do not round up to all."""
    return share if share is None or share == 1 else min(share, 0.9999)


def print_trust(results: list[Any], options: Any, folder: Any) -> None:
    """Print how stable components are, the errors of hidden entries, and the rank to take."""
    from factormer.app.runs.advice import NAMES, advised
    from factormer.app.runs.trust import as_shown, validated

    for r in results:
        if r.stability is not None:
            each = " ".join(f"{number:.2f}" for number in r.stability)
            runs = f"{r.runs_kept} of {options.repeats} runs{_ON[options.resample]}"
            print(f"  rank {r.rank}: stability of components in {runs}: {each}")
    found = validated(results, options.loss, options.holdout or 0.0)
    if found is not None:
        what = "RMSE of hidden entries" if found.loss.is_quadratic else "loss of a hidden entry"
        for rank, error, spread in as_shown(found):
            more = f" ± {spread:.2g}" if math.isfinite(spread) else ""
            print(f"  rank {rank}: {what} {error:.5g}{more}")
    advice = advised(results, asdict(options), folder.choice())
    if advice is not None:
        recommended = "" if advice.by == "bend" else f"rank {advice.rank} is recommended: "
        text = advice.text if not recommended else advice.text[0].lower() + advice.text[1:]
        print(f"  {recommended}{text}")
        for rule in advice.rules if len(advice.rules) > 1 else ():
            print(f"    rank {rule.rank}, by {NAMES[rule.by]}: {rule.text}")


def compare_all(results: list[Any], folder: Any, known: Any) -> dict[int, list[Any]]:
    """The components of each rank beside those that are known, if there are some."""
    from factormer.app.runs.references import compare_rank

    if known is None:
        return {}
    return {result.rank: compare_rank(folder, result.rank, known) for result in results}


def as_rows(pairs: dict[int, list[Any]]) -> dict[str, list[dict[str, Any]]]:
    """Pairs for machines, by rank."""
    return {str(rank): [pair._asdict() for pair in found] for rank, found in pairs.items()}


def print_pairs(pairs: dict[int, list[Any]], known: Any) -> None:
    """Print which reference each component is, and how near."""
    if known is not None and known.by == "order":
        print(
            f"  --compare: V or the references have no labels of {known.side}; "
            "both were taken in the order of their files"
        )
    for rank, found in pairs.items():
        print(f"  rank {rank}: component, reference, cosine (angle)")
        for pair in found:
            print(f"    {pair.component:3d}  {pair}")


def write_sounds(file: Path, results: list[Any], folder: Any, *, transposed: bool) -> list[Path]:
    """Write each component of a sound as a .wav file, if V is of one; the folders they are in."""
    from factormer.app.read.sound import components, write_wav

    if file.suffix.lower() != ".wav":
        return []
    places = []
    for result in results:
        factors, place = folder.factors(result.rank), folder.rank(result.rank)
        W, H = (factors[name] for name in ("HW" if transposed else "WH"))
        for c, (rate, sound) in enumerate(components(file.expanduser(), W, H)):
            write_wav(place / f"component-{c + 1}.wav", rate, sound)
        places.append(place)
    return places


def print_advice(results: list[Any], options: Any) -> None:
    """Say what to do where a fit ended early, or where many fit equally well."""
    late = [result.rank for result in results if result.status == "MAX_ITER"]
    if late:
        print(
            f"  rank {', '.join(map(str, late))}: --max-iter {options.max_iter} came before "
            f"--tol {options.tol:g}; allow more iterations if the last digits matter"
        )
    sides = (("h", options.regularize_w, options.regularize_h),)
    sides += (("w", options.regularize_h, options.regularize_w),)
    for side, asked, other in sides:
        if _has_shares(asked) and not any(term.lower().startswith("volume") for term in other):
            print(
                "  with simplex alone, different components fit these data equally well; add "
                f"--regularize-{side} volume to get those that enclose the data most tightly"
            )
