"""Clients that are installed for a test: packages of their shape, with the version they claim."""

import importlib
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

import factormer

HERE = Path(__file__).parent


@pytest.fixture
def install(tmp_path, monkeypatch):
    """A function that installs a fake client: name, module, source and version."""
    monkeypatch.syspath_prepend(str(tmp_path / "site"))

    def installed(package: str, module: str, source: str, version: str) -> ModuleType:
        folder = tmp_path / "site" / package
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
        shutil.copy(HERE / source, folder / f"{module}.py")
        about = tmp_path / "site" / f"{package}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
        )
        importlib.invalidate_caches()
        for name in (package, f"{package}.{module}"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(f"{package}.{module}")

    yield installed
    for client in ("cnmf", "sigprofiler"):
        factormer.unpatch(client)
    for name in [n for n in sys.modules if n.partition(".")[0] in ("cnmf", "SigProfilerExtractor")]:
        sys.modules.pop(name)
