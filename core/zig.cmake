# A toolchain file: compile with zig, a Clang that brings the libraries of other systems. ZIG is its program, from `pip install ziglang`,
# and ZIG_TARGET the system, such as aarch64-linux-gnu.2.28 for Linux on ARM64 with glibc 2.28 or later.
set(CMAKE_CXX_COMPILER "$ENV{ZIG}" c++ -target "$ENV{ZIG_TARGET}")
set(CMAKE_CXX_ARCHIVE_CREATE "$ENV{ZIG} ar qc <TARGET> <OBJECTS>")
set(CMAKE_CXX_ARCHIVE_FINISH "$ENV{ZIG} ranlib <TARGET>")
