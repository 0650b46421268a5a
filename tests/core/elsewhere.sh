#!/usr/bin/env bash
# Compile the core for systems that are not here, with zig: Linux on ARM64, with glibc and with musl, macOS on ARM64 and Windows on x86-64.
# It stops at object files, since Python's libraries for these systems are not here. Python's headers are those of this machine;
# only its pyconfig.h is another on Windows, where the few lines below stand for it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
place=$PWD/build/elsewhere
mkdir -p "$place/windows"
test -x "$place/tools/bin/pip" || .venv/bin/python -m venv "$place/tools"
"$place/tools/bin/python" -m pip install --quiet --disable-pip-version-check ziglang
headers=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("include"))')
nanobind=$(.venv/bin/python -m nanobind --include_dir)
cp -r "$headers"/. "$place/windows"
cat > "$place/windows/pyconfig.h" <<'HEADER'
#include <io.h>
#include <stdio.h>
#include <sys/types.h>
#define MS_WINDOWS
#define MS_WIN32
#define MS_WIN64
#define NT_THREADS
#define HAVE_DECLSPEC_DLL
#define Py_ENABLE_SHARED 1
#define SIZEOF_SHORT 2
#define SIZEOF_INT 4
#define SIZEOF_LONG 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_VOID_P 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_TIME_T 8
#define SIZEOF_WCHAR_T 2
#define SIZEOF_PID_T 4
HEADER

flags=(-std=c++20 -O3 -DNDEBUG -fPIC -ffp-contract=fast -fno-math-errno -fno-trapping-math -fvisibility=hidden -Wall -Wextra -Werror)
for target in aarch64-linux-gnu.2.28 aarch64-linux-musl aarch64-macos x86_64-windows-gnu; do
  for file in baseline avx2 avx512 bindings; do
    case $target-$file in
      aarch64-*-avx*) continue ;;
      *-avx2) more=(isa.cpp -mavx2 -mfma) ;;
      *-avx512) more=(isa.cpp -mavx512f -mavx512dq -mavx512vl -mavx512bw -mavx2 -mfma -mprefer-vector-width=512) ;;
      *-baseline) more=(isa.cpp) ;;
      *windows*-bindings) more=(bindings.cpp -isystem "$nanobind" -isystem "$place/windows") ;;
      *) more=(bindings.cpp -isystem "$nanobind" -isystem "$headers") ;;
    esac
    test "$file" = bindings && set=host || set=$file
    "$place/tools/bin/python" -m ziglang c++ -target "$target" "${flags[@]}" "-DFACTORMER_SET=$set" \
      -c "core/${more[0]}" "${more[@]:1}" -o "$place/$target-$file.o"
    echo "compiled $file for $target"
  done
done
