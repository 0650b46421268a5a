"""Shape checks at every call into the package, at a fraction of what jaxtyping's own hook costs.

Whether a call passes depends on kinds alone: of an array its type, shape and number type, of most
others the class. So a call like one that has passed is not checked again, only looked up. What
holds any number of values, as a list does, is checked at each call.
"""

import dataclasses
import inspect
import sys
import threading
from collections.abc import Callable, Collection, Hashable, Iterator
from functools import cached_property, partial, wraps
from types import FunctionType
from typing import Any

import jaxtyping
import numpy as np
from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook, jaxtyped
from jaxtyping._decorator import _destring_annotation
from torch import Tensor

refuse = beartype(conf=BeartypeConf(violation_type=TypeError))  # as jaxtyping does


def install() -> None:
    """From here on, whatever is imported of factormer fails at a call with a wrong shape."""
    jaxtyping.jaxtyped = checked  # pyright: ignore[reportPrivateImportUsage]  # the hook's word
    install_import_hook(["factormer", "factormer_lab"], "tests.shapes.refuse")


def checked(fn: Any = None, *, typechecker: Callable[..., Any] | None = None) -> Any:
    """What `jaxtyped` makes of a function or a dataclass, each kind of call checked once."""
    if fn is None:
        return partial(checked, typechecker=typechecker)
    if typechecker is not None and inspect.isclass(fn):
        if dataclasses.is_dataclass(fn) and "__init__" in vars(fn):
            fn.__init__ = _with_checks(fn.__init__, _Check(fn.__init__, typechecker, fn))
        return fn
    if typechecker is None or not inspect.isfunction(fn):
        return jaxtyped(fn, typechecker=typechecker)
    if not fn.__annotations__:
        return fn
    return _with_checks(fn, _Check(fn, typechecker))


def _with_checks(fn: Any, check: "_Check") -> Any:
    """The function, its parameters and result checked unless such have passed before."""
    # Names of this module are bound here: what runs the function stands in that one's module.
    passed, kind_of, open_kind, context = check.passed, kind, _Open, jaxtyped
    is_looked_at = inspect.isgeneratorfunction(fn)

    def in_its_own_shapes(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        try:
            key = tuple([kind_of(value) for value in args])
            if kwargs:
                key = (key, *[(name, kind_of(value)) for name, value in kwargs.items()])
            results = passed.get(key)
        except open_kind:
            key = results = None
        if results is None or is_looked_at:
            with context("context"):
                result = check.whole(*args, **kwargs)
            if key is not None:
                passed[key] = set()  # the result of the next such call is looked at once more
            return result
        result = fn(*args, **kwargs)
        try:
            if (of_result := kind_of(result)) in results:
                return result
            check.check_result(result, args, kwargs)
            results.add(of_result)
        except open_kind:
            check.check_result(result, args, kwargs)
        return result

    code, closure = in_its_own_shapes.__code__, in_its_own_shapes.__closure__
    stand_in = FunctionType(code, fn.__globals__, closure=closure)
    return wraps(fn)(stand_in)


# Kinds of parameters → kinds of results, for each function. A function within another is made at
# each call of that one, and shares what has passed with those made before.
_PASSED: dict[Hashable, dict[Hashable, set[Hashable]]] = {}


class _Check:
    """The checks of a function, made when they are first needed, and what has passed them."""

    def __init__(
        self, fn: FunctionType, typechecker: Callable[..., Any], made_for: type | None = None
    ) -> None:
        self.fn, self.typechecker, self.made_for = fn, typechecker, made_for
        name = fn.__module__, fn.__qualname__, fn.__code__
        self.passed = _PASSED.setdefault((*name, *fn.__annotations__.items()), {})
        self.results = threading.local()

    @cached_property
    def whole(self) -> Callable[..., Any]:
        """The function with all its checks."""
        return self.with_checks(self.fn)

    @cached_property
    def giving(self) -> Callable[..., Any]:
        """What takes the parameters of the function, and gives a result that is there already."""

        @wraps(self.fn)
        def give(*_args: Any, **_kwargs: Any) -> Any:
            return self.results.last

        return self.with_checks(give)

    def with_checks(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        hints = self.fn.__annotations__
        if self.made_for is not None:
            hints.update(_fields(self.made_for))
        for name, hint in hints.items():  # a name that type checkers alone import stands for any
            if isinstance(hint, str) and _destring_annotation(hint, self.fn.__globals__) is Any:
                hints[name] = Any
        return self.typechecker(fn)

    def check_result(self, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Check what the function gave, beside the parameters whose shapes it shares."""
        __tracebackhide__ = True
        self.results.last = result
        with jaxtyped("context"):
            self.giving(*args, **kwargs)
        del self.results.last


class _Open(Exception):  # noqa: N818
    """Raised for what has no kind, and is looked at each time: whatever holds any values."""


def kind(value: Any) -> Hashable:
    """What decides whether a value passes: of those of one kind all do, or none."""
    cls = type(value)
    try:
        of = _KINDS[cls]
    except KeyError:
        of = _KINDS[cls] = _kinds_of(cls)
    return cls if of is None else of(value)


_KINDS: dict[type, Callable[[Any], Hashable] | None] = {}  # None: the class is the kind


def _kinds_of(cls: type) -> Callable[[Any], Hashable] | None:
    if issubclass(cls, Tensor | np.ndarray):
        return lambda array: (cls, array.shape, array.dtype)
    if issubclass(cls, tuple):
        return lambda parts: (cls, *[kind(part) for part in parts])
    if issubclass(cls, str | type):  # of words, some may be allowed
        return lambda value: (cls, value)
    if issubclass(cls, Collection | Iterator):
        return _open
    return None


def _open(_: Any) -> Hashable:
    raise _Open


def _fields(cls: type) -> dict[str, Any]:
    """What the fields of a dataclass are, each by the names of the module that says so."""
    hints = {}
    for base in reversed(cls.__mro__):
        names = vars(sys.modules[base.__module__])
        for name, hint in vars(base).get("__annotations__", {}).items():
            hints[name] = _destring_annotation(hint, names)
    init = {field.name for field in dataclasses.fields(cls) if field.init}
    return {name: hint for name, hint in hints.items() if name in init}
