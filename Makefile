# Every procedure of the project is a target; `make` alone lists them.
# `make demo` and `make test` need nothing but Python 3.11 or later: they set up .venv by themselves.

# The first interpreter that is new enough. Another: make PYTHON=python3.12 …
PYTHON ?= $(shell for p in python3.11 python3 python; do \
	$$p -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
# Modules are compiled when they are first imported, not all of them now: that halves the wait.
# Their bytecode is kept, whatever the environment says.
PIP := -m pip install --quiet --disable-pip-version-check --no-compile
PIP_INSTALL := $(PIP) -c constraints.txt
export PYTHONDONTWRITEBYTECODE :=
READY := .venv/ready.stamp
INSTALLED := .venv/installed.stamp
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
WHEEL_ENV := build/wheel-venv
OLDEST_ENV := build/oldest
# The package with its core, compiled by what stands in constraints.txt; what has not changed is kept in build/core.
CORE := build/core
BUILD_TOOLS := scikit-build-core nanobind cmake ninja
EDITABLE := --no-build-isolation --config-settings build-dir=$(CORE) -e
CMAKE_CORE := cmake -S core -G Ninja -DPython_EXECUTABLE=$(abspath $(BIN)/python)
NANOBIND := build/nanobind/nanobind
CLIENTS_ENV := build/clients-env
CLIENTS := cnmf==1.7.1 SigProfilerExtractor==1.4.1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install setup demo test test-lab test-all test-no-core test-foreign test-processors test-oldest resolve check fmt fmt-check lint types conformance golden reproduce clean
.PHONY: characterise fuzz fuzz-again fuzz-sklearn
.PHONY: core core-test core-asan core-asan-short core-asan-built core-tsan core-count core-fuzz
.PHONY: core-offline core-elsewhere core-arm64 wheel wheels try-wheels
.PHONY: docs examples recipes readme-picture screenshots
.PHONY: bench
.PHONY: clients clients-env compare best

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-17s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(READY) ## Make .venv and install the package in it, with what draws figures

setup: $(INSTALLED) ## The same, with the lab and all that developers need

# Torch comes first and alone: only so does it come from the constraints, not from another package's wish.
# It is imported, and so compiled to bytecode, while the rest is installed.
$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or later was not found; name one: make PYTHON=…" >&2; exit 1; }
	@echo "Setting up .venv (the first time takes a minute, and the time to download 300 MB)"
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	@$(BIN)/python $(PIP_INSTALL) torch
	@$(BIN)/python $(PIP_INSTALL) $(BUILD_TOOLS)
	@$(BIN)/python -W ignore -c 'import torch' & \
	  $(BIN)/python $(PIP_INSTALL) $(EDITABLE) '.[plot]'; status=$$?; wait; exit $$status
	@$(BIN)/python -c 'from factormer.kernels.core import core; core()'
	@touch $@

$(INSTALLED): $(READY) lab/pyproject.toml
	@echo "Adding the lab and the tools of developers to .venv"
	@$(BIN)/python $(PIP_INSTALL) 'factormer[dev]' -e ./lab
	@touch $@

demo: $(READY) ## Factorize the digits beside scikit-learn, and draw the components
	$(BIN)/factormer demo

test: $(INSTALLED) ## Run the tests of the package, all but the slow ones
	$(PYTEST) -n 2 --dist worksteal --ignore=tests/core

test-lab: $(INSTALLED) ## Run the tests of the lab, all but the slow ones
	$(PYTEST) -n 2 --dist worksteal lab/tests

test-all: $(INSTALLED) ## Run all tests, the slow ones too, and then as other processors would
	$(PYTEST) -n 2 --dist worksteal -m "" tests lab/tests
	tests/run_as_other_processors.sh

test-no-core: $(INSTALLED) ## Run the laws as if the core had not been compiled
	FACTORMER_NO_CORE=1 $(PYTEST) -n 2 --dist worksteal tests/laws

test-foreign: $(INSTALLED) ## Run the laws under the core's other instruction sets, once as another processor would compute the rest
	tests/run_as_other_processors.sh short

test-processors: $(INSTALLED) ## Run all that compares numbers under every instruction set, and as another processor would
	tests/run_as_other_processors.sh

resolve: $(INSTALLED) ## Ask pip whether the oldest versions allowed exist for each Python and system
	$(BIN)/python -m tests.resolve_oldest

# Torch 2.5 for Linux comes with CUDA: some 3 GB are downloaded. Old packages use what newer ones deprecate.
test-oldest: ## Run the tests with the oldest versions allowed, in build/oldest: TESTS="tests/kernels …" for some
	@test -x $(OLDEST_ENV)/bin/pip || $(PYTHON) -m venv $(OLDEST_ENV)
	@$(OLDEST_ENV)/bin/python $(PIP) -c constraints-oldest.txt torch
	@$(OLDEST_ENV)/bin/python $(PIP) -c constraints-oldest.txt -e '.[test]'
	OMP_NUM_THREADS=1 $(OLDEST_ENV)/bin/python -m pytest -n 2 --dist worksteal -W ignore::DeprecationWarning $(TESTS)

characterise: $(INSTALLED) ## Compare errors and statuses with those that were frozen, on FACTORMER_DATA=… too: CASES="NMF …"
	$(BIN)/python -m tests.characterise $(CASES)

fuzz: $(INSTALLED) ## Try inputs that nobody thought of, on from where it ended: SECONDS=600 JOBS=2
	$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),600) --jobs $(or $(JOBS),2)

fuzz-again: $(INSTALLED) ## Try the inputs again that `make fuzz` found to fail, and forget those mended
	$(BIN)/python -m tests.fuzz --again

fuzz-sklearn: $(INSTALLED) ## Compare final errors with scikit-learn's NMF on INPUTS=2000 matrices
	$(BIN)/python -m tests.fuzz --sklearn $(or $(INPUTS),2000) --jobs $(or $(JOBS),2)

core: $(INSTALLED) ## Compile the core again, after a change of it; without a compiler this is an error
	FACTORMER_NO_CORE=0 $(BIN)/python $(PIP_INSTALL) --no-deps $(EDITABLE) .

# cmake and ninja of .venv come first.
core-asan core-asan-short core-asan-built core-tsan: export PATH := $(abspath $(BIN)):$(PATH)

core-test: core ## Run the tests of the core
	$(PYTEST) -n 2 tests/core

# Python is not built with sanitizers, so their libraries are loaded before it; what it leaves allocated is no leak of ours.
ASAN := LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libubsan.so)" \
  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 FACTORMER_CORE=$(CORE)-asan OPENBLAS_NUM_THREADS=1
CORE_TESTS := $(addprefix tests/core/test_,bits.py ends.py inputs.py losses.py start.py twin.py)

core-asan: core-asan-built ## Run the tests of the core and the laws under AddressSanitizer and UBSan, in build/core-asan
	$(ASAN) $(PYTEST) --noconftest $(CORE_TESTS)
	$(ASAN) FACTORMER_CORE=$(abspath $(CORE)-asan) $(PYTEST) tests/laws

core-asan-short: core-asan-built ## The same in a minute: lanes of every kind, odd inputs, and the law of one answer
	$(ASAN) $(PYTEST) --noconftest tests/core/test_inputs.py tests/core/test_bits.py tests/core/test_losses.py -k "not threads and not alike"
	$(ASAN) FACTORMER_CORE=$(abspath $(CORE)-asan) $(PYTEST) tests/laws/test_ways.py -k "one_answer and not counts and not multiplicative and (factorize- or list-)"

core-asan-built: $(INSTALLED)
	$(CMAKE_CORE) -B $(CORE)-asan -DSANITIZE=address,undefined
	cmake --build $(CORE)-asan --parallel 2

core-tsan: $(INSTALLED) ## Run the tests of lanes and threads under ThreadSanitizer, in build/core-tsan
	$(CMAKE_CORE) -B $(CORE)-tsan -DSANITIZE=thread
	cmake --build $(CORE)-tsan --parallel 2
	LD_PRELOAD="$$($(CXX) -print-file-name=libtsan.so)" TSAN_OPTIONS=halt_on_error=1:suppressions=core/tsan.txt FACTORMER_CORE=$(CORE)-tsan OPENBLAS_NUM_THREADS=1 \
	  $(PYTEST) --noconftest tests/core/test_bits.py tests/core/test_ends.py tests/core/test_losses.py -k "thread or neighbours or share or time or watch or lanes"

core-count: core ## Count the instructions of an iteration in four fixed cases, by callgrind, beside those recorded
	$(BIN)/python -m tests.core.instructions

core-fuzz: core ## Call the bindings of the core with whatever comes to mind: CALLS=1000000
	$(BIN)/python -m tests.core.fuzz --calls $(or $(CALLS),1000000)

# Nothing but cmake, ninja, a C++ compiler and Python's headers is needed, where `make $(NANOBIND)` was run before or its result was copied.
core-offline: $(NANOBIND) ## Compile the core without pip and network, from the sources of nanobind in build/nanobind: PYTHON=python3
	cmake -S core -B $(CORE)-offline -G Ninja -DPython_EXECUTABLE="$$(command -v $(PYTHON))" -DNANOBIND="$(abspath $(NANOBIND))"
	cmake --build $(CORE)-offline
	cmake --install $(CORE)-offline --prefix src

$(NANOBIND):
	$(PYTHON) $(PIP_INSTALL) --no-deps --target $(dir $@) nanobind

core-elsewhere: $(INSTALLED) ## Compile the core for Linux on ARM64, macOS and Windows, with zig, without linking it
	tests/core/elsewhere.sh

core-arm64: $(INSTALLED) ## Run tests of the core for ARM64 on the emulator qemu, after `make wheels`: TESTS="tests/core/test_twin.py …"
	tests/core/arm64.sh $(TESTS)

check: fmt-check lint types test test-lab ## All that must pass before a commit

fmt: $(INSTALLED) ## Format the code and mend what lint can mend
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

fmt-check: $(INSTALLED) ## Fail if `make fmt` would change a file
	$(BIN)/ruff format --check .

lint: $(INSTALLED) ## Lint with ruff
	$(BIN)/ruff check .

types: $(INSTALLED) ## Check the types with pyright
	$(BIN)/pyright

# OLD and NEW are commits, each in an environment of its own in build/compare; without NEW, the working tree.
compare: $(READY) ## Compare the speed of two versions, on an idle machine: OLD=commit NEW=commit CASES="race kl …" PAIRS=15
	@test -n "$(OLD)" || { echo "name a version: make compare OLD=commit" >&2; exit 1; }
	PYTHONPATH=lab/src $(BIN)/python -m factormer_lab.bench.compare $(OLD) $(NEW) \
	  $(if $(CASES),--cases $(CASES)) $(if $(PAIRS),--pairs $(PAIRS))

best: $(READY) ## Find the best error of 40 starts that `make compare` measures by, for hours: CASES="race/digits kl …"
	PYTHONPATH=lab/src $(BIN)/python -m factormer_lab.bench.best $(CASES)

# `make bench` alone lists the names, each with the question that it answers.
bench: $(INSTALLED) ## Measure: NAME=kl ARGS="--help", on FACTORMER_DATA=… too; the names, where none is given
	PYTHONPATH=lab/src $(BIN)/python -m factormer_lab.bench $(NAME) $(ARGS)

# Real clients, in an environment of their own. They want an older pandas, and an older numpy, where an array of one
# number is a number. Torch comes first and alone, as above.
clients-env: $(CLIENTS_ENV)/installed.stamp ## Make the environment with cNMF and SigProfilerExtractor

$(CLIENTS_ENV)/installed.stamp: constraints.txt
	@test -x $(CLIENTS_ENV)/bin/pip || $(PYTHON) -m venv $(CLIENTS_ENV)
	@grep -vE '^(numpy|pandas)==' constraints.txt > $(CLIENTS_ENV)/constraints.txt
	@printf 'numpy<2.4\npandas<3\n' >> $(CLIENTS_ENV)/constraints.txt
	@cd $(CLIENTS_ENV) && bin/python $(PIP_INSTALL) torch
	@cd $(CLIENTS_ENV) && bin/python $(PIP_INSTALL) $(CLIENTS) -e ../..
	@touch $@

clients: $(CLIENTS_ENV)/installed.stamp ## Run real clients as they are and patched: ARGS="cnmf --small", NAME=agree, FACTORMER_DATA=…
	PYTHONPATH=lab/src $(CLIENTS_ENV)/bin/python -m factormer_lab.bench $(or $(NAME),clients) $(ARGS)

RECIPES := librosa hyperspy bertopic turftopic

recipes: $(INSTALLED) ## Run the recipes for other packages, in an environment of their own on top of .venv
	@test -x build/recipes-env/bin/python || $(BIN)/python -m venv build/recipes-env
	@echo "import site; site.addsitedir('$(abspath $(wildcard .venv/lib/python3*/site-packages))')" > $$(echo build/recipes-env/lib/python3*/site-packages)/venv.pth
	@build/recipes-env/bin/python $(PIP) $(RECIPES)
	OMP_NUM_THREADS=1 build/recipes-env/bin/python -m pytest tests/clients/test_recipes.py

docs: $(INSTALLED) ## Build the site in build/docs; any warning is an error
	$(BIN)/python -m sphinx -b html -W --keep-going -q docs build/docs
	@echo "site: build/docs/index.html"

examples: $(INSTALLED) ## Run the examples of the gallery again (pip install scanpy for one of them): EXAMPLES="…" for some
	$(BIN)/python docs/gallery.py $(EXAMPLES)

readme-picture: $(INSTALLED) ## Error against seconds beside scikit-learn, the picture of the README
	PYTHONPATH=lab/src OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m factormer_lab.bench picture

conformance: $(INSTALLED) ## Run scikit-learn's own suites on NMF, and write docs/conformance.md
	$(BIN)/python -m tests.sklearn_conformance.report

screenshots: $(INSTALLED) ## Make docs/pictures of reports in chromium
	$(BIN)/python -m docs.make_screenshots

golden: $(INSTALLED) ## Rewrite tests/golden from the shipped models; review the diff
	$(PYTEST) -m "" -k golden --rewrite-golden
	git diff --stat -- tests/golden

reproduce: $(INSTALLED) ## Redraw the paper's figures: FIGURES="…" for some, FACTORMER_DATA=… for real data
	$(BIN)/factormer reproduce $(FIGURES) $(if $(FACTORMER_DATA),--data "$(FACTORMER_DATA)")

wheel: $(INSTALLED) ## Build the wheel of this machine in build/wheel, install it in a clean environment, list its models
	rm -rf build/wheel $(WHEEL_ENV)
	FACTORMER_NO_CORE=0 $(BIN)/python -m build --wheel --outdir build/wheel .
	$(BIN)/python -m venv $(WHEEL_ENV)
	$(WHEEL_ENV)/bin/python $(PIP_INSTALL) torch
	$(WHEEL_ENV)/bin/python $(PIP_INSTALL) build/wheel/factormer-*.whl
	cd build && wheel-venv/bin/python -W error -c 'import factormer; print(factormer.__file__)'
	cd build && wheel-venv/bin/python -W error -c 'from factormer.kernels.core import headers, isa; print(isa(), *headers())'
	cd build && wheel-venv/bin/factormer models

wheels: ## Build the wheels for Linux on x86-64 and ARM64, with zig, in dist: PYTHONS="python3.11 python3.12"
	core/wheels.sh $(or $(PYTHONS),python3.11 python3.12)

try-wheels: ## Run the tests of the core against these wheels, in empty environments without a compiler: PYTHONS="python3.11 python3.13"
	core/try_wheels.sh $(or $(PYTHONS),python3.11 python3.12)

clean: ## Remove what was built and cached; .venv and runs/ stay
	rm -rf build dist .pytest_cache .ruff_cache .hypothesis
	find src tests lab -name __pycache__ -type d -prune -exec rm -rf {} +
