"""patch() and unpatch(): put our functions in place of another package's, and take them out."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib import metadata
from types import ModuleType
from typing import Any, NamedTuple

from factormer.clients import cnmf, sigprofiler
from factormer.run.request import check_choice


class Client(NamedTuple):
    """A package whose factorizations we can take over."""

    package: str  # as it is installed
    series: str  # versions that we know begin with this
    module: str  # where its functions are
    ours: Callable[[ModuleType], list[tuple[Any, str, Any]]]  # owner, name, what to put there


CLIENTS = {
    "cnmf": Client("cnmf", "1.7.", "cnmf.cnmf", cnmf.replacements),
    "sigprofiler": Client(
        "SigProfilerExtractor",
        "1.4.",
        "SigProfilerExtractor.subroutines",
        sigprofiler.replacements,
    ),
}
_theirs: dict[str, list[tuple[Any, str, Any]]] = {}  # of each client that is patched


def patch(client: str) -> None:
    """Let another package factorize by `factorize_many`, until `unpatch`; the rest stays its own.

    Parameters
    ----------
    client : {"cnmf", "sigprofiler"}
        cNMF 1.7: `cNMF.factorize` makes all its runs in one call, and writes the files that
        `combine` reads. SigProfilerExtractor 1.4: all replicates of a number of signatures are one
        call. Ranks, seeds, data, loss, penalties, start and limits are those of the package.

    Notes
    -----
    A run has the same seed as without the patch, but another start and solver, so it may end in
    another local minimum. See docs/howto/many.md.
    """
    check_choice("client", client, tuple(CLIENTS))
    if client in _theirs:
        return
    found = CLIENTS[client].ours(_module(CLIENTS[client]))
    _theirs[client] = [(owner, name, getattr(owner, name)) for owner, name, _ in found]
    for owner, name, function in found:
        setattr(owner, name, function)


def unpatch(client: str) -> None:
    """Give a package its own functions back; nothing happens where it was not patched."""
    check_choice("client", client, tuple(CLIENTS))
    for owner, name, function in _theirs.pop(client, ()):
        setattr(owner, name, function)


def _module(client: Client) -> ModuleType:
    """The module to patch, of a version that we know."""
    try:
        installed = metadata.version(client.package)
    except metadata.PackageNotFoundError:
        raise ImportError(
            f"{client.package} is not installed; install it: pip install {client.package}"
        ) from None
    if not installed.startswith(client.series):
        raise ImportError(
            f"{client.package} {installed} is installed, and patch knows version {client.series}x "
            f"only; install that one, or call factorize_many yourself"
        )
    return importlib.import_module(client.module)
