#!/usr/bin/env bash
# Run the laws, and whatever else compares numbers, under every instruction set of the core that this machine has.
# Once more in all, other losses are computed as another processor would: they still run on torch, MKL, OpenBLAS and numba.
# With the argument "short": laws alone, those of the core under each set but the one that all tests run under, and all laws under the
# least set with those settings; what CI does.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

CODE=$(mktemp -d) # compiled for another processor: none of it is kept
trap 'rm -rf "$CODE"' EXIT
FOREIGN="ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE OPENBLAS_CORETYPE=Haswell NUMBA_CPU_NAME=generic NUMBA_CACHE_DIR=$CODE"
SETS=$(.venv/bin/python -c 'from tests.core.built import load; print(*load().isas())')
LEAST=${SETS##* }
LAWS="tests/laws"
OF_THE_CORE="tests/laws/test_ways.py tests/laws/test_twins.py tests/laws/test_rounding.py tests/laws/test_returned.py tests/laws/test_watched.py"
NUMBERS="tests/solvers tests/accelerate tests/kernels tests/data tests/problem tests/starts tests/run
  tests/many tests/select tests/estimator tests/app tests/clients tests/kept tests/nn tests/datasets
  tests/fuzz tests/characterise tests/sklearn_conformance tests/core
  tests/test_functions.py tests/test_edges.py tests/test_tl.py --ignore=tests/app/report/test_browser.py"

under() { # SETTING THREADS TEST…
  local setting=$1 threads=$2
  shift 2
  echo "== $setting, $threads thread(s)"
  env $setting OMP_NUM_THREADS="$threads" .venv/bin/python -m pytest -n $((3 - threads)) --dist worksteal -q "$@"
}

if [ "${1:-all}" = short ]; then
  for set in $SETS; do
    # all tests run under the first set, and all laws under the least one, below
    test "$set" = "${SETS%% *}" || test "$set" = "$LEAST" || under "FACTORMER_ISA=$set" 1 $OF_THE_CORE
  done
  under "FACTORMER_ISA=$LEAST $FOREIGN" 1 $LAWS
  exit
fi
for set in $SETS; do
  under "FACTORMER_ISA=$set" 1 $LAWS $NUMBERS
done
for threads in 1 2; do
  under "FACTORMER_ISA=$LEAST $FOREIGN" "$threads" $LAWS $NUMBERS
done
