"""Findings of passes at points, kept for as long as somebody has the point."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from torch import Tensor


@dataclass(eq=False)
class Known:
    """Products and errors at points (W, H), in a view of V.

    They are looked up by the tensors themselves, and forgotten with them: so the best point of a
    run has its products for as long as the run keeps it, and those of other points take no memory.
    """

    _found: dict[int, tuple[Any, Any, Any, Any]] = field(default_factory=dict)
    _keys: Any = field(default_factory=count)

    def keep(self, view: Any, found: Any) -> None:
        """Keep a named tuple whose first field is the point x."""
        key, rest = next(self._keys), found._replace(x=None)

        def forget(_: Any) -> None:
            self._found.pop(key, None)

        W, H = (weakref.ref(F, forget) for F in found.x)
        self._found[key] = view, W, H, rest

    def at(self, view: Any, W: Tensor | None = None, H: Tensor | None = None) -> Any:
        """Return what was found at a point of these factors, without x; None if nothing was."""
        for seen, of_W, of_H, found in reversed(list(self._found.values())):
            same = (W is None or of_W() is W) and (H is None or of_H() is H)
            if same and seen == view:
                return found
        return None

    def __len__(self) -> int:
        return len(self._found)
