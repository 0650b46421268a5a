"""Run the examples and write a page for each: its text, its code, what it printed, what it drew.

An example is a script of cells, `docs/examples/NAME.py`; `# %% [markdown]` opens one of text and
`# %%` one of code. It imports nothing but packages, so that it runs wherever it is pasted. Figures
that it shows are saved for light and dark pages (their caption is the figure's `num`), and so are
sounds that it writes. `python docs/gallery.py [NAME …]` writes `docs/examples/NAME.md`.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

FOLDER = Path(__file__).parent.resolve() / "examples"
NAMES = (
    *("parts", "unmixing", "topics", "audio", "cells", "signatures", "ratings"),
    *("own_accelerator", "donors"),
)
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a8a8a")
STYLE = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": mpl.cycler(color=COLOURS),
    "legend.frameon": False,
    "savefig.dpi": 140,
}
DARK = ("#131416", "#d6d8db")  # the page's ground in the dark, and ink on it
_CELL = re.compile(r"^# %%(.*)\n", re.MULTILINE)


class Cell(NamedTuple):
    """A piece of a script: text in Markdown, or code."""

    is_text: bool
    source: str


def cells(script: str) -> Iterator[Cell]:
    """The cells of a script, in order; text before the first mark is ignored."""
    _, *parts = _CELL.split(script)
    for mark, body in zip(parts[::2], parts[1::2], strict=True):
        is_text = "[markdown]" in mark
        text = re.sub(r"^# ?", "", body, flags=re.MULTILINE) if is_text else body
        yield Cell(is_text, text.strip())


def page(name: str) -> str:
    """Run an example and return its page."""
    script = (FOLDER / f"{name}.py").read_text("utf-8")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    parts = [f"<!-- Written by docs/gallery.py from {name}.py: change that, and run it. -->"]
    pictures = _pictures(name)
    for cell in cells(script):
        if cell.is_text:
            parts.append(cell.source)
            continue
        printed, heard = io.StringIO(), set(Path().glob("*.wav"))
        with contextlib.redirect_stdout(printed):
            exec(compile(cell.source, f"{name}.py", "exec", dont_inherit=True), namespace)
        parts.append(f"```python\n{cell.source}\n```")
        if printed.getvalue():
            parts.append(f"```text\n{printed.getvalue().rstrip()}\n```")
        figures = [plt.figure(number) for number in plt.get_fignums()]
        parts += [_drawn(figure, next(pictures)) for figure in figures]
        plt.close("all")
        sounds = sorted(set(Path().glob("*.wav")) - heard, key=lambda file: file.stat().st_mtime_ns)
        parts += [_heard(sound) for sound in sounds]
    return "\n\n".join(parts) + "\n"


def _pictures(name: str) -> Iterator[Path]:
    """Paths for the pictures of an example, in order; those of an earlier page are removed."""
    folder = FOLDER / "pictures"
    for old in [*folder.glob(f"{name}-[0-9].png"), *folder.glob(f"{name}-[0-9]-dark.png")]:
        old.unlink()
    yield from (folder / f"{name}-{k}.png" for k in range(1, 10))


def _drawn(figure: Figure, path: Path) -> str:
    """Save a figure for light and for dark pages; both, in Markdown."""
    caption = str(figure.get_label())
    figure.savefig(path, metadata={"Software": None})
    dark = path.with_stem(f"{path.stem}-dark")
    darken(figure)
    figure.savefig(dark, metadata={"Software": None})
    shown = ((path, "only-light"), (dark, "only-dark"))
    return "\n".join(f"![{caption}](pictures/{file.name}){{.{scheme}}}" for file, scheme in shown)


def darken(figure: Figure) -> None:
    """Exchange black ink and white ground; colours, and what lies on an image, stay."""
    ground, ink = DARK
    figure.set_facecolor(ground)
    on_images = [text for ax in figure.axes if ax.images for text in ax.texts]
    figure.set_edgecolor(ground)
    for artist in figure.findobj(lambda found: found not in on_images):
        if isinstance(artist, Axes):
            artist.set_facecolor(ground)
            artist.tick_params(colors=ink, which="both")
        for part in ("color", "edgecolor", "markeredgecolor"):
            if _is_black(artist, part):
                getattr(artist, f"set_{part}")(ink)


def _is_black(artist: Artist, part: str) -> bool:
    value = getattr(artist, f"get_{part}", lambda: None)()
    try:
        red, green, blue, opacity = to_rgba(value)
    except (TypeError, ValueError):  # several colours, or none
        return False
    return opacity > 0 and not (red or green or blue)


def _heard(sound: Path) -> str:
    """Keep a sound with the pages; its player, in HTML."""
    shutil.copy(sound, FOLDER / "sounds" / sound.name)
    player = f'<audio controls preload="none" src="../_static/{sound.name}"></audio>'
    return f"{sound.stem.capitalize()}:\n\n{player}"


def prepare() -> None:
    """Put what an example trained where it looks for it: minutes of training are not repeated."""
    trained = Path("runs/spectra/spectra.safetensors")
    trained.parent.mkdir(parents=True)
    shutil.copy(FOLDER / trained.name, trained)


def main(names: list[str]) -> None:
    """Write the pages of the examples named, or of all; files they leave behind go elsewhere."""
    plt.rcParams.update(STYLE)
    plt.show = lambda *args, **options: None  # `page` saves what is open
    for name in names or NAMES:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            prepare()
            text = page(name)
        (FOLDER / f"{name}.md").write_text(text, "utf-8")
        print(f"docs/examples/{name}.md")


if __name__ == "__main__":
    main(sys.argv[1:])
