"""A result as a small picture for notebooks: convergence and components, in SVG without a package.

Lines have the colour of the text around them, so it is right on light and on dark pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np
from jaxtyping import Float, Int

_SHOWN = 8  # components at most
_POINTS = 160  # of a line at most
_LABELS = 3  # of the largest entries of a component
_LEFT, _STRIP, _HIGH, _WORDS = 180, 240, 20, 230  # sizes in pixels
_BLUE = "#4477aa"


def drawn(
    text: str,
    iterations: Int[np.ndarray, " t"],
    errors: Float[np.ndarray, " t"],
    measure: str,
    H: Float[np.ndarray, "n r"],
    shares: Float[np.ndarray, " r"],
    labels: Any = None,
) -> str:
    """Error by iteration beside the columns of H with their shares and largest labels."""
    shown = min(_SHOWN, H.shape[1])
    height = max(100, (_HIGH + 6) * shown + (40 if shown < H.shape[1] else 24))
    inside = [
        *_convergence(iterations, errors, measure, height),
        *(line for c in range(shown) for line in _component(H[:, c], float(shares[c]), c, labels)),
    ]
    if shown < H.shape[1]:
        more = f"{H.shape[1] - shown} more components"
        inside.append(_words(_LEFT + 30, height - 6, more))
    width = _LEFT + 30 + _STRIP + _WORDS
    return (
        f'<div><svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="11" fill="currentColor" style="max-width:100%;height:auto">'
        f"<title>{escape(text)}</title>{''.join(inside)}</svg><div>{escape(text)}</div></div>"
    )


def _convergence(
    iterations: np.ndarray, errors: np.ndarray, measure: str, height: int
) -> Iterable[str]:
    """The error by iteration, on a log scale, with its first and last value."""
    known = np.isfinite(errors) & (errors > 0)
    x, y = iterations[known].astype(float), errors[known].astype(float)
    yield _words(4, 12, f"{measure} by iteration")
    if len(y) < 2:
        return
    top, bottom = 22, height - 18
    logs = np.log(y)
    across = 6 + (x - x[0]) / max(float(np.ptp(x)), 1.0) * (_LEFT - 16)
    down = bottom - (logs - logs.min()) / max(float(np.ptp(logs)), 1e-12) * (bottom - top)
    keep = np.unique(np.linspace(0, len(y) - 1, min(len(y), _POINTS)).round().astype(int))
    yield _line(across[keep], down[keep], f'fill="none" stroke="{_BLUE}" stroke-width="1.5"')
    yield _words(across[0] + 4, max(top + 10.0, down[0]), f"{y[0]:.3g}")
    yield _words(_LEFT - 8, down[-1] - 4, f"{y[-1]:.4g}", "end")
    yield _words(_LEFT - 8, height - 4, f"{int(x[-1])}", "end")


def _component(h: np.ndarray, share: float, c: int, labels: Any) -> Iterable[str]:
    """A column of H as an area, and beside it its share and largest entries."""
    left, base = _LEFT + 30, 16 + (_HIGH + 6) * c + _HIGH
    h = np.nan_to_num(np.asarray(h, float), posinf=0.0, neginf=0.0)
    cuts = np.unique(np.linspace(0, len(h), min(len(h), _POINTS) + 1).astype(int))
    values = np.abs(np.maximum.reduceat(np.abs(h), cuts[:-1]))
    values = values / max(float(values.max()), np.finfo(float).tiny)
    edges = left + cuts / len(h) * _STRIP
    across = np.repeat(edges, 2)
    down = np.concatenate([[base], base - np.repeat(values, 2) * _HIGH, [base]])
    yield _line(across, down, f'fill="{_BLUE}" stroke="none"')
    yield (
        f'<line x1="{left}" y1="{base}" x2="{left + _STRIP}" y2="{base}" stroke="currentColor" '
        'stroke-width="0.5"/>'
    )
    words = f"{c}: {100 * share:.0f} %"
    if labels is not None:
        names = [str(labels[int(j)]) for j in np.argsort(-np.abs(h), kind="stable")[:_LABELS]]
        words += " " + ", ".join(name if len(name) <= 12 else name[:11] + "…" for name in names)
    yield _words(left + _STRIP + 6, base - 4, words)


def _line(x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray, style: str) -> str:
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    return f'<polyline points="{points}" {style}/>'


def _words(x: float | int, y: float | int, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(text)}</text>'
