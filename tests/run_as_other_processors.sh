#!/usr/bin/env bash
# Run the laws, and whatever else compares numbers, as other processors would compute them.
# With the argument "combined": once, under the one setting that differs most; what CI does.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

CODE=$(mktemp -d) # compiled for another processor: none of it is kept
trap 'rm -rf "$CODE"' EXIT
COMBINED="ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE OPENBLAS_CORETYPE=Haswell NUMBA_CPU_NAME=generic"
LAWS="tests/laws"
NUMBERS="tests/solvers tests/accelerate tests/kernels tests/data tests/problem tests/starts tests/run
  tests/many tests/select tests/estimator tests/app tests/clients tests/kept tests/nn tests/datasets
  tests/fuzz tests/characterise tests/sklearn_conformance
  tests/test_functions.py tests/test_edges.py tests/test_tl.py --ignore=tests/app/report/test_browser.py"

under() { # SETTING THREADS TEST…
  local setting=$1 threads=$2
  shift 2
  echo "== $setting, $threads thread(s)"
  env $setting NUMBA_CACHE_DIR="$CODE" OMP_NUM_THREADS="$threads" \
    .venv/bin/python -m pytest -n $((3 - threads)) --dist worksteal -q "$@"
}

if [ "${1:-all}" = combined ]; then
  under "$COMBINED" 1 $LAWS
  exit
fi
for setting in ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=COMPATIBLE \
  OPENBLAS_CORETYPE=Haswell OPENBLAS_CORETYPE=Zen OPENBLAS_CORETYPE=Prescott \
  NUMBA_CPU_NAME=generic NUMBA_CPU_NAME=haswell; do
  under "$setting" 1 $LAWS $NUMBERS
done
under "$COMBINED" 1 $LAWS $NUMBERS
under "$COMBINED" 2 $LAWS $NUMBERS
