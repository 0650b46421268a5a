"""`--scale`: in which units the components and their use are kept."""

from __future__ import annotations

from factormer.app.read import Axis
from factormer.app.runs.resampling import samples_are_columns
from factormer.data.factors import Factors
from factormer.run.order import canonical
from factormer.run.request import check_choice
from factormer.sentence import Sentence

SCALES = ("balanced", "sum")


def check_scale(scale: str, *, is_free: bool) -> None:
    """Refuse other scales, and one that penalties or V ≈ H Hᵀ fix."""
    check_choice("scale", scale, SCALES)
    if scale == "sum" and not is_free:
        raise ValueError(
            Sentence(
                "{scale} is 'sum', and {regularize_W}, {regularize_H} and {symmetric} fix the "
                "scale of components: leave it out, or them"
            )
        )


def summed_side(rows: Axis, columns: Axis) -> str:
    """The factor whose columns sum to 1 with `--scale sum`: W if the samples are the columns."""
    return "W" if samples_are_columns(rows, columns) else "H"


def in_units(x: Factors, scale: str, rows: Axis, columns: Axis) -> Factors:
    """Scale components to the sum 1, so that their use is in the unit of V; if asked for."""
    if scale != "sum":
        return x
    if summed_side(rows, columns) == "H":
        return canonical(x, None, "sum")
    turned = canonical(Factors(x.H, x.W), None, "sum")
    return Factors(turned.H, turned.W)
