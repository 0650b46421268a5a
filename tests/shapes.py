"""Shape checks at every call into the package, at a fraction of what jaxtyping's own hook costs."""

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import jaxtyping
from jaxtyping import install_import_hook, jaxtyped


def install() -> None:
    """From here on, whatever is imported of factormer fails at a call with a wrong shape."""
    jaxtyping.jaxtyped = checked  # pyright: ignore[reportPrivateImportUsage]  # the hook's word
    install_import_hook("factormer", "beartype.beartype")


def checked(fn: Any = None, *, typechecker: Callable[..., Any] | None = None) -> Any:
    """What `jaxtyped` makes of a function, with parameters bound by Python and checked once.

    Its own wrapper binds them by `inspect` and checks them again beside the result.
    """
    if fn is None:
        return partial(checked, typechecker=typechecker)
    if typechecker is None or not inspect.isfunction(fn):
        return jaxtyped(fn, typechecker=typechecker)
    check = typechecker(fn)

    @wraps(fn)
    def in_its_own_shapes(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        with jaxtyped("context"):
            return check(*args, **kwargs)

    return in_its_own_shapes
