#!/usr/bin/env bash
# Run the tests of the core for ARM64 on the emulator qemu, against the wheel for ARM64 in dist/ (make wheels). Debian's packages for ARM64
# give Python and its libraries, unpacked in build/arm64; nothing is installed. It needs apt-get, dpkg-deb and qemu-aarch64 (qemu-user).
# Errors and statuses of planted cases have to be those of this machine too.
#   tests/core/arm64.sh TEST…
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
place=$PWD/build/arm64
python="$place/root/usr/bin/python3.13" # of Debian 13

if ! test -x "$python"; then
  mkdir -p "$place"/apt/{lists,cache/archives}/partial "$place/root"
  touch "$place/apt/status"
  keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  echo "deb [signed-by=$keyring] http://deb.debian.org/debian trixie main" > "$place/apt/sources.list"
  settings=(-q -y -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root
    -o Dir::State::lists="$place/apt/lists" -o Dir::State::status="$place/apt/status" -o Dir::Cache="$place/apt/cache"
    -o Dir::Etc::sourcelist="$place/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Debug::NoLocking=1)
  apt-get "${settings[@]}" update
  apt-get "${settings[@]}" install --no-install-recommends --download-only python3 libstdc++6
  for package in "$place"/apt/cache/archives/*.deb; do dpkg-deb -x "$package" "$place/root"; done
  test -e "$place/root/lib" || ln -s usr/lib "$place/root/lib"
fi

# What the tests import, and the wheel. Torch is not among it, so only tests that do without it run.
pip=(.venv/bin/python -m pip install --quiet --disable-pip-version-check --target "$place/site" --upgrade
  --python-version 3.13 --implementation cp --abi cp313 --abi abi3 --abi none --only-binary :all:
  --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux_2_17_aarch64)
test -d "$place/site/sklearn" ||
  "${pip[@]}" -c constraints.txt numpy scipy scikit-learn pytest hypothesis joblib threadpoolctl
"${pip[@]}" --no-deps --no-index --find-links dist factormer

export QEMU_LD_PREFIX="$place/root" PYTHONPATH="$place/site" PYTHONDONTWRITEBYTECODE=1 OPENBLAS_NUM_THREADS=1
qemu-aarch64 "$python" -c 'import platform, tests.core.lanes as l; print(platform.machine(), l.core.__file__, l.core.isas())'
PYTHONPATH=src .venv/bin/python -m tests.core.planted > "$place/planted.json"
qemu-aarch64 "$python" -m tests.core.planted "$place/planted.json"
test $# -gt 0 || set -- tests/core/test_bits.py tests/core/test_inputs.py
qemu-aarch64 "$python" -m pytest --noconftest -p no:cacheprovider -q "$@"
