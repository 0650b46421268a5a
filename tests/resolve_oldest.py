"""Whether the lower bounds of pyproject.toml exist for each Python and system: `make resolve`.

pip resolves them, without installing, from wheels alone. Torch is only looked up, since its wheels
are gigabytes.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
SYSTEMS = {
    "Linux": [f"manylinux{v}_x86_64" for v in ("_2_28", "_2_27", "_2_17", "2014")],
    "macOS": [f"macosx_{v}" for v in ("14_0_arm64", "12_0_arm64", "11_0_arm64", "11_0_universal2")],
    "Windows": ["win_amd64"],
}
EXTRAS = ("plot", "read")


def oldest(python: str) -> dict[str, str]:
    """The lowest version of each package that pyproject.toml allows for a Python."""
    project = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]
    wanted = [*project["dependencies"]]
    wanted += [one for extra in EXTRAS for one in project["optional-dependencies"][extra]]
    found = {}
    for requirement in map(Requirement, wanted):  # a later line is for a later Python
        if not requirement.marker or requirement.marker.evaluate({"python_version": python}):
            (bound,) = requirement.specifier
            found[requirement.name] = bound.version
    return found


def pip(command: list[str], python: str, platforms: list[str]) -> subprocess.CompletedProcess[str]:
    options = [f"--python-version={python}", *(f"--platform={name}" for name in platforms)]
    options += ["--only-binary=:all:", "--disable-pip-version-check"]
    return subprocess.run(
        [sys.executable, "-m", "pip", *command, *options],
        capture_output=True,
        text=True,
        check=False,
    )


def problem(python: str, platforms: list[str]) -> str:
    """Return what pip says is missing; nothing if all is there."""
    bounds = oldest(python)
    torch = bounds.pop("torch")
    listed = pip(["index", "versions", "torch"], python, platforms).stdout
    versions = listed.partition("Available versions:")[2].partition("\n")[0].split(",")
    if Version(torch) not in [Version(version) for version in versions if version.strip()]:
        return f"no torch {torch}"
    pins = [f"{name}=={at}" for name, at in bounds.items()]
    done = pip(["install", "--dry-run", "--target=build/resolved", *pins], python, platforms)
    return done.stderr[-300:] if done.returncode else ""


def main() -> int:
    failed = 0
    for python in PYTHONS:
        for system, platforms in SYSTEMS.items():
            said = problem(python, platforms)
            failed += bool(said)
            print(f"Python {python}, {system}: {said or 'resolved'}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
