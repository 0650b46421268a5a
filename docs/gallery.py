"""Run the examples and write a page for each: its text, its code, what it printed, what it drew.

An example is a script of cells, `docs/examples/NAME.py`; `# %% [markdown]` opens one of text and
`# %%` one of code. `python docs/gallery.py [NAME …]` writes `docs/examples/NAME.md`.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent.resolve() / "examples"
NAMES = (
    *("faces", "unmixing", "topics", "audio", "cells", "signatures", "ratings"),
    *("own_accelerator",),
)
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
    import drawing

    script = (FOLDER / f"{name}.py").read_text("utf-8")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    parts = [f"<!-- Written by docs/gallery.py from {name}.py: change that, and run it. -->"]
    for cell in cells(script):
        if cell.is_text:
            parts.append(cell.source)
            continue
        printed = io.StringIO()
        drawing.made.clear()
        with contextlib.redirect_stdout(printed):
            exec(compile(cell.source, f"{name}.py", "exec", dont_inherit=True), namespace)
        parts.append(f"```python\n{cell.source}\n```")
        if printed.getvalue():
            parts.append(f"```text\n{printed.getvalue().rstrip()}\n```")
        parts += [_shown(made) for made in drawing.made]
    return "\n\n".join(parts) + "\n"


def _shown(made: Any) -> str:
    if made.path.suffix == ".wav":
        player = f'<audio controls preload="none" src="../_static/{made.path.name}"></audio>'
        return f"{made.caption}\n\n{player}"
    return f"![{made.caption}](pictures/{made.path.name})"


def main(names: list[str]) -> None:
    """Write the pages of the examples named, or of all; files they leave behind go elsewhere."""
    sys.path.insert(0, str(FOLDER))
    if "FACTORMER_DATA" in os.environ:
        os.environ["FACTORMER_DATA"] = str(Path(os.environ["FACTORMER_DATA"]).resolve())
    for name in names or NAMES:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            text = page(name)
        (FOLDER / f"{name}.md").write_text(text, "utf-8")
        print(f"docs/examples/{name}.md")


if __name__ == "__main__":
    main(sys.argv[1:])
