#!/usr/bin/env bash
# core/try_wheels.sh PYTHON…: install the wheel in dist/ that suits this machine into an empty environment of each Python, and run the tests of
# the core against it. No compiler is on the path, so nothing can be compiled in its place.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for python in "$@"; do
  place=$PWD/build/wheels/try-$("$python" -c 'import sys; print("%d%d" % sys.version_info[:2])')
  test -x "$place/bin/pip" || "$python" -m venv "$place"
  pip=("$place/bin/python" -m pip install --quiet --disable-pip-version-check)
  "${pip[@]}" torch -c constraints.txt
  "${pip[@]}" 'factormer[test]' --find-links dist --only-binary factormer -c constraints.txt
  "${pip[@]}" factormer --no-index --find-links dist --only-binary factormer --no-deps --force-reinstall
  env -i HOME="${TMPDIR:-/tmp}" PATH="$place/bin" OMP_NUM_THREADS=1 \
    "$place/bin/python" -m pytest -q -n 2 -p no:cacheprovider tests/core tests/kernels/test_core.py
done
