"""`--rank select`: the rank is chosen first, and the choice kept beside the run."""

from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path
from typing import Any

from factormer.app.read import Data
from factormer.app.runs.fit import FitOptions
from factormer.app.runs.folder import dump, finite
from factormer.data.files import write
from factormer.select.ranks.choice import Choice
from factormer.select.ranks.select import select_rank


def choose_rank(
    data: Data, options: FitOptions, ranks: list[int] | None = None, *, mask: Any, weights: Any
) -> Choice:
    """The choice of a rank, of those given, for the data of a run, under its loss."""
    if weights is not None:
        raise ValueError(
            "--rank select takes entries that count the same; leave --weights out, and fit the "
            "rank that it chooses with them"
        )
    asked: dict[str, Any] = {"loss": options.loss, "mask": mask, "missing": options.missing}
    return select_rank(data.V, ranks, random_state=options.seed, **asked)


def described(choice: Choice) -> dict[str, Any]:
    """The choice in numbers and words; null where there is no number."""
    curves = {"rank": list(choice.probabilities)}
    curves |= {name: values.tolist() for name, values in choice.curves.items()}
    told = {
        "rank": choice.rank,
        "clear": choice.clear,
        "reason": choice.reason,
        "probabilities": {str(rank): p for rank, p in choice.probabilities.items()},
        "criteria": {name: rule.rank for name, rule in choice.criteria.items()},
        "rules": {name: rule.rule for name, rule in choice.criteria.items()},
        "curves": curves,
    }
    return finite(told)


def keep_choice(choice: Choice, path: Path) -> None:
    """Write choice.json, and choice.png where there is matplotlib."""
    write(path / "choice.json", dump(described(choice)))
    picture = io.BytesIO()
    with suppress(ImportError):
        choice.plot().savefig(picture, dpi=120, format="png")
        write(path / "choice.png", picture.getvalue())
