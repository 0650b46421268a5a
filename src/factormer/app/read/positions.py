"""Axes that are lines: frequencies, times and wavelengths, known by their names and units."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from factormer.app.read.data import Axis, DataError, reading, reading_numbers

UNITS = {
    **{"hz": "Hz", "khz": "kHz", "mhz": "MHz", "s": "s", "sec": "s", "seconds": "s", "ms": "ms"},
    **{"us": "µs", "min": "min", "h": "h", "nm": "nm", "um": "µm", "µm": "µm", "mm": "mm"},
    **{"ev": "eV", "kev": "keV", "cm1": "cm⁻¹", "ppm": "ppm", "k": "K", "deg": "°"},
}
_NOUNS = {
    "frequency": r"f|freqs?|frequenc(y|ies)",
    "time": r"t|times?",
    "wavelength": r"wl|lambdas?|wavelengths?|waves?",
    "wavenumber": r"wavenumbers?|raman(_?shifts?)?",
    "energy": r"energ(y|ies)",
    "band": r"bands?",
    "channel": r"channels?",
    "angle": r"angles?|two_?theta",
}
# Units that are the names of lists by themselves, and what they measure.
_ALONE = {
    **{"nm": "wavelength", "um": "wavelength", "µm": "wavelength", "cm1": "wavenumber"},
    **{"hz": "frequency", "khz": "frequency", "ev": "energy", "kev": "energy", "ppm": "shift"},
}
_MICROMETRES = 100  # below which wavelengths are not in nanometres


def placed(axis: Axis, name: str, values: Sequence[float]) -> Axis:
    """The axis at these positions, if they rise or fall; `name` is that of their list.

    "freq_hz" makes them frequencies in Hz. Where the axis has labels or an image, it keeps them.
    """
    numbers = np.asarray(values, dtype=np.float64)
    steps = np.diff(numbers)
    rises = bool(np.isfinite(numbers).all()) and bool((steps > 0).all() or (steps < 0).all())
    if axis.grid is not None or axis.positions is not None or len(numbers) < 2 or not rises:
        return axis
    noun, unit = described(name)
    if noun == "wavelength" and not unit:
        unit = unit_of_wavelengths(numbers.tolist())
    axis = replace(axis, positions=tuple(numbers.tolist()), unit=unit)
    return replace(axis, noun=noun) if noun and axis.noun in ("row", "column", "band") else axis


def described(name: str) -> tuple[str, str]:
    """Return the quantity and its unit from the name of a list such as "freq_hz" or "Raman (cm-1)".

    A unit alone names its quantity too.
    """
    text = re.sub(r"cm\s*\^?\s*(-1|⁻¹)|1/cm", "cm1", name.lower().strip())
    *head, tail = [part for part in re.split(r"[\s_()\[\],/]+", text) if part] or [""]
    unit = UNITS.get(tail, "") if head or tail in _ALONE else ""
    text = "_".join(head if unit else [*head, tail])
    noun = next((noun for noun, pattern in _NOUNS.items() if re.fullmatch(pattern, text)), "")
    return noun or (_ALONE.get(tail, "") if not head else ""), unit


def is_position(name: str) -> bool:
    """Whether a list of numbers of this name says where rows or columns lie."""
    noun, unit = described(name)
    return bool(noun or unit)


def unit_of_wavelengths(values: Sequence[float]) -> str:
    """Nm or µm: optical wavelengths are hundreds of the one, and few of the other."""
    return "µm" if max(map(float, values)) < _MICROMETRES else "nm"


def at_wavelengths(rows: Axis, columns: Axis, path: Path) -> tuple[Axis, Axis]:
    """The two axes, one of which is at the wavelengths in a file: the only one of their number."""
    values = read_numbers(path)
    fitting = [axis.size == len(values) for axis in (rows, columns)]
    if not any(fitting):
        raise DataError(
            f"{path} holds {len(values)} wavelengths, and V has {rows.size} {rows.nouns} and "
            f"{columns.size} {columns.nouns}; there must be one for each band"
        )
    steps = np.diff(values)
    if not ((steps > 0).all() or (steps < 0).all()):
        raise DataError(f"{path} holds wavelengths that neither rise nor fall throughout; sort V")

    def placed_at(axis: Axis) -> Axis:
        bare = replace(axis, labels=None, positions=None, grid=None, noun="band")
        return placed(bare, "wavelengths", values)

    return (rows, placed_at(columns)) if fitting[1] else (placed_at(rows), columns)


def read_numbers(path: Path) -> list[float]:
    """The numbers of a text file, apart by blanks, commas or lines; of each line the last."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; choose one with a number per line")
    with reading(path, "a list of numbers"):
        if path.suffix == ".npy":
            with reading_numbers():
                return [float(x) for x in np.load(path, allow_pickle=False).reshape(-1)]
        lines = [line for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
        cells = [re.split(r"[\s,;]+", line.strip()) for line in lines if line[:1] != "#"]
        if len(cells) == 1:
            return [float(cell) for cell in cells[0] if cell]
        if cells and not _is_number(cells[0][-1]):  # a header
            cells = cells[1:]
        return [float([cell for cell in line if cell][-1]) for line in cells]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
