"""Let an estimator take scikit-learn's callbacks, if its version has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    from sklearn.callback import (
        CallbackSupportMixin,  # pyright: ignore[reportAssignmentType]
        with_callbacks,
    )
except ImportError:  # before scikit-learn 1.9

    class CallbackSupportMixin:
        """Nothing to support."""

    def with_callbacks(method: Callable[..., Any]) -> Callable[..., Any]:
        """Nothing to tidy up."""
        return method
