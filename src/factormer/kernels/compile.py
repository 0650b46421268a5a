"""How the functions of this package are compiled by numba, and call each other.

Compilation is waited for in every new environment, and most of it goes by the length of a function
and by how often it is compiled. So each is compiled alone, for one signature, without counting
references (no memory is allocated within), and others call it by its address: numba would put
a copy into every caller, and compile that again. Other processes take what the first one compiled
from the disk, but never a function that closes over another compiled one: so what a function calls
without an address is a global of its module. Imported where numba is present, and may compile.
Where nothing can be kept on the disk, every process compiles for itself.
"""

from __future__ import annotations

import gc
import hashlib
import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from threading import RLock
from typing import Any

import numba
from numba import types
from numba.core import cgutils, config
from numba.core.caching import FunctionCache
from numba.core.cpu import CPUTargetOptions
from numba.extending import intrinsic

from factormer.kernels import say_once

_UNKEPT = (
    "Compiled code is not kept on the disk (%s), so that every process compiles it for itself, in "
    "some seconds. To have it kept, let NUMBA_CACHE_DIR name a folder that can be written to."
)

if config.DISABLE_JIT:  # pyright: ignore[reportAttributeAccessIssue]
    raise ImportError("NUMBA_DISABLE_JIT is set: nothing is compiled")


def stamp(folder: Path) -> bytes:
    """A fingerprint of the source files in a folder."""
    files = sorted(folder.glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).digest()


class Cache(FunctionCache):
    """Compiled code on the disk, taken from there until any file of this package changes.

    Numba looks at a function's own file alone. But code has copies within it of what it calls from
    other files, and the signatures of what it calls by address: with older ones it would crash.
    What goes wrong with the disk is compiled for, but never raised.
    """

    package = stamp(Path(__file__).parent)

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file._source_stamp = (self._cache_file._source_stamp, self.package)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What is on the disk; None where nothing is that can be read."""
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:
            return say_once(_UNKEPT, error)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write to the disk, if it lets us."""
        try:
            super().save_overload(sig, data)
        except Exception as error:
            say_once(_UNKEPT, error)


def once(make: Callable[..., Any]) -> Callable[..., Any]:
    """What `make` makes, once for each argument, whichever threads ask for it.

    Garbage is not looked for in the meantime: numba makes much of what lives on and little else.
    """
    lock, made = RLock(), {}

    @wraps(make)
    def get(*arguments: Any) -> Any:
        with lock:
            if arguments not in made:
                collects = gc.isenabled()
                gc.disable()
                try:
                    made[arguments] = make(*arguments)
                finally:
                    if collects:
                        gc.enable()
            return made[arguments]

    return get


# Without counting references, where numba knows the option: it is not one for everybody.
_UNCOUNTED = {"_nrt": False} if hasattr(CPUTargetOptions, "_nrt") else {}


def jit(
    signature: Any = None, *, inner: bool = False, inline: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile at once for a signature, or without one for whatever types a compiled caller has.

    `inner` functions cannot be called from Python; those to `inline` are compiled with their caller
    alone. NaN and infinity keep their meaning.
    """
    decorate = numba.njit(  # pyright: ignore[reportCallIssue]
        nogil=True,
        error_model="numpy",
        fastmath={"contract", "reassoc", "nsz"},
        no_cfunc_wrapper=True,
        no_cpython_wrapper=inner,
        inline="always" if inline else "never",
        no_rewrites=True,
        **_UNCOUNTED,
    )

    def build(function: Callable[..., Any]) -> Any:
        plain = inspect.unwrap(function)
        compiled = decorate(plain)
        try:
            compiled._cache = Cache(plain)
        except Exception as error:  # no folder to write to, or a numba that does it otherwise
            say_once(_UNKEPT, error)
        if signature is not None:
            compiled.compile(signature)
            compiled.disable_compile()
        return compiled

    return build


def array(dtype: Any, dim: int = 2, layout: str = "C") -> Any:
    """The type of an array in a signature."""
    return types.Array(dtype, dim, layout)


def address(function: Any) -> int:
    """Where a function stands that was compiled for one signature."""
    (result,) = function.overloads.values()
    return result.library.get_pointer_to_function(result.fndesc.llvm_func_name)


def calling(*signatures: Any) -> Any:
    """`call(address, (arguments, …))` for compiled code, of a function with this signature.

    Of several, the one is taken whose first argument is of the type given.
    """

    @intrinsic
    def call(_: Any, address: Any, arguments: Any) -> tuple[Any, Callable[..., Any]]:
        signature = signatures[0]
        for other in signatures[1:]:
            if other.args[0].dtype == arguments[0].dtype:
                signature = other

        def lower(context: Any, builder: Any, given: Any, values: Any) -> Any:
            kind = context.call_conv.get_function_type(signature.return_type, signature.args)
            function = builder.inttoptr(values[0], kind.as_pointer())
            pairs = zip(cgutils.unpack_tuple(builder, values[1]), given.args[1], strict=True)
            ready = [
                context.cast(builder, value, have, want)
                for (value, have), want in zip(pairs, signature.args, strict=True)
            ]
            _, result = context.call_conv.call_function(
                builder, function, signature.return_type, signature.args, ready
            )
            return result

        return signature.return_type(address, arguments), lower

    return call
