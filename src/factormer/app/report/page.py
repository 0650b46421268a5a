"""One page of HTML with its style, its script and its data inside."""

from __future__ import annotations

import html
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from factormer.app.report.payload import payload
from factormer.app.runs import RunFolder
from factormer.app.runs.folder import finite
from factormer.data.files import write

_SCRIPTS = (
    *("base.js", "table.js", "draw.js", "chart.js", "mutations.js", "names.js", "components.js"),
    *("sections.js", "ranks.js", "consensus.js", "main.js"),
)


def write_report(folder: RunFolder) -> Path:
    """Write the page of a run, and return its path."""
    write(folder.report, page(payload(folder)))
    return folder.report


def page(contents: dict[str, Any]) -> str:
    """The page as text. Names in the data are never interpreted as HTML or script."""
    assets = files("factormer.app.report") / "assets"

    def asset(name: str) -> str:
        return (assets / name).read_text(encoding="utf-8")

    data = json.dumps(finite(contents), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    parts = {
        "title": html.escape(contents["name"]),
        "style": asset("page.css"),
        "script": "\n".join(asset(name) for name in _SCRIPTS),
        "data": data.replace("<", "\\u003c"),  # so that no </script> can end the data early
    }
    text = asset("page.html")
    for name, part in parts.items():
        head, _, tail = text.partition(f"<!-- {name} -->")
        text = head + part + tail
    return text
