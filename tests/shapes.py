"""Shape checks at every call into the package, at a fraction of what jaxtyping's own hook costs."""

import inspect
from collections.abc import Callable
from functools import partial, wraps
from types import FunctionType
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook, jaxtyped

refuse = beartype(conf=BeartypeConf(violation_type=TypeError))  # as jaxtyping does


def install() -> None:
    """From here on, whatever is imported of factormer fails at a call with a wrong shape."""
    jaxtyping.jaxtyped = checked  # pyright: ignore[reportPrivateImportUsage]  # the hook's word
    install_import_hook("factormer", "tests.shapes.refuse")


def checked(fn: Any = None, *, typechecker: Callable[..., Any] | None = None) -> Any:
    """What `jaxtyped` makes of a function, with parameters bound by Python and checked once.

    Its own wrapper binds them by `inspect` and checks them again beside the result.
    """
    if fn is None:
        return partial(checked, typechecker=typechecker)
    if typechecker is None or not inspect.isfunction(fn):
        return jaxtyped(fn, typechecker=typechecker)
    check, context = typechecker(fn), jaxtyped

    def in_its_own_shapes(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        with context("context"):
            return check(*args, **kwargs)

    code, closure = in_its_own_shapes.__code__, in_its_own_shapes.__closure__
    stand_in = FunctionType(code, fn.__globals__, closure=closure)  # of the module of what it wraps
    return wraps(fn)(stand_in)
