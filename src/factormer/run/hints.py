"""Keywords of scikit-learn, given to functions that have other words for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_OURS = {
    "n_components": "rank",
    "beta_loss": "loss",
    "X": "V",
    "alpha_W": "regularize_W, with L1 and L2 of factormer.penalties",
    "alpha_H": "regularize_H, with L1 and L2 of factormer.penalties",
    "l1_ratio": "regularize_W and regularize_H, with L1 and L2 of factormer.penalties",
}


def hint_of(name: str, given: Iterable[str]) -> str | None:
    """Return a hint on the first keyword that is scikit-learn's; None where there is none."""
    for word in given:
        if word in _OURS:
            return (
                f"{name} has no keyword {word!r}, which is scikit-learn's: say {_OURS[word]}, or "
                "use factormer.NMF, which takes scikit-learn's keywords"
            )
    return None


def check_shared(name: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Refuse keywords that many problems cannot share."""
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise TypeError(
            hint_of(name, unknown)
            or f"{name} has no keyword {unknown[0]!r}; it takes those of factorize that many "
            f"problems can share: {', '.join(known)}"
        )


def hinted(function: F) -> F:
    """The function, which says what the keywords of scikit-learn are called here."""

    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        try:
            return function(*given, **named)
        except TypeError:
            hint = hint_of(function.__name__, named)
            if hint is None:
                raise
            raise TypeError(hint) from None

    return call  # pyright: ignore[reportReturnType]
