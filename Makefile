# Every target sets up what it needs first (scripts/setup.sh: system packages, .venv, pip packages, the build) and
# is quick when that is done already.
SHELL := /bin/bash
PY := .venv/bin/python
BUILD := build

.DEFAULT_GOAL := build
.PHONY: build setup wheel test-wheel demo service bench bench-quick bench-service test nightly check lit runtime sanitize coverage fuzz fuzz-programs fuzz-state soak pytest docs docs-site opinfo onnx-nodes pictures format clean

build: setup

setup:
	@scripts/setup.sh

# Wheels that need no LLVM and no compiler, in dist/: one for each interpreter of PYTHONS, compiled in build-wheel. For
# AArch64, compiled on this machine for Python 3.11: `make wheel MACHINE=aarch64`.
PYTHONS ?= python3
wheel:
	@scripts/setup.sh packages
	@$(if $(MACHINE),MACHINE=$(MACHINE)) scripts/wheel.sh $(PYTHONS)

# Installs a wheel of dist/ on a minimal Debian 12 without a compiler, and compiles MiniLM there: minutes.
test-wheel:
	@scripts/test-wheel.sh $(TEST_WHEEL_ARGS)

# MiniLM against eager PyTorch: with this tree's build, or with DISC_WHEEL=1 with the wheel in dist/, without a build.
demo:
	@scripts/demo.sh

# The HTTP server of examples/service, and the library of MiniLM that it is linked with.
MINILM := $(BUILD)/minilm
service: setup
	@$(PY) examples/build_library.py $(MINILM)
	@cmake -S examples/service -B $(BUILD)/service -G Ninja -DCMAKE_PREFIX_PATH=$(CURDIR)/$(MINILM) >/dev/null
	@cmake --build $(BUILD)/service --target service tokenize
	@echo 'start it with: $(BUILD)/service/service --vocab $(MINILM)/share/minilm/vocab.txt --port 8080'

# DISC against its peers, which get an environment of their own: tables, JSON and a plot in bench/results.
# BENCH_ARGS: see `make bench BENCH_ARGS=--help`.
bench: setup
	@bench/setup.sh
	@.venv-bench/bin/python -m bench $(BENCH_ARGS)

# Few shapes and the peers that compile fast.
bench-quick: setup
	@bench/setup.sh
	@.venv-bench/bin/python -m bench --quick $(BENCH_ARGS)

# The service under load, on DISC and on ONNX Runtime.
bench-service: setup
	@bench/setup.sh
	@.venv-bench/bin/python -m bench.service $(BENCH_ARGS)

# The cheap checks come first, so that a slip shows within seconds; pytest's closing line is the last.
test: setup check lit runtime sanitize fuzz
	@scripts/soak.sh calls=20000
	@$(MAKE) --no-print-directory pytest

# The pictures of docs/howto/viewer-pictures.md: three programs in five viewers, with Chromium. PICTURES: the folder.
PICTURES ?= docs/howto/pictures
pictures: setup
	@scripts/setup.sh pictures
	@$(PY) tools/gen_viewer_pictures.py $(PICTURES)

# What takes longer than `make test` may: whole databases of operators, all shapes, minutes of fuzzing. Some hours.
nightly: setup
	@scripts/setup.sh tests
	@$(PY) -m pip install --disable-pip-version-check -q -r requirements-ray.txt
	@scripts/fuzz.sh 600 $$RANDOM
	@scripts/soak.sh seconds=7200 seed=$$RANDOM
	@DISC_ALL_MODELS=1 DISC_FUZZ_PROGRAMS=2000 DISC_ODD_CALLS=700 DISC_BUDGET_CALLS=400 OMP_WAIT_POLICY=passive \
	  $(PY) -m pytest -n $$(nproc) --dist loadfile --no-loadscope-reorder --timeout 0 -m ''
	@OMP_WAIT_POLICY=passive $(PY) -m pytest --sanitize -n $$(nproc) --dist loadfile --no-loadscope-reorder \
	  test/python/e2e/test_{ops,operators,opinfo,models,minilm,loops,scan,recurrent,trees,recursion,data_dependent}.py \
	  test/python/property/test_random_programs.py
	@$(PY) -m bench.isa avx2 $(PY) -m pytest -n $$(nproc) --dist loadfile --no-loadscope-reorder test/python/e2e
	@$(PY) test/python/onnx_nodes.py
	@$(PY) test/python/onnx_nodes.py --dynamic
	@cd test/python && ../../$(PY) -m opinfo --all-samples --shapes 3
	@cd test/python && ../../$(PY) -m zoo
	@cd test/python && ../../$(PY) -m programs --count 20000 --seed $$RANDOM --failures ../../$(BUILD)/found-programs
	@cd test/python && ../../$(PY) -m state_programs --count 5000 --seed $$RANDOM

check: setup
	@scripts/check.sh

lit: setup
	@.venv/bin/lit -sv -Dbuild=$(BUILD) test/lit

# The runtime on its own, without the compiler.
runtime: setup
	@ninja -C $(BUILD) disc-runtime-test disc-runtime-fault-test >/dev/null
	@$(BUILD)/test/runtime/disc-runtime-test
	@$(BUILD)/test/runtime/disc-runtime-fault-test

# Its tests again under AddressSanitizer and UndefinedBehaviorSanitizer, and under ThreadSanitizer.
sanitize: setup
	@scripts/sanitize.sh

# Lines and branches of lib/Runtime that its own tests execute, by file.
coverage: setup
	@scripts/coverage.sh

# Code that reads data of unknown origin: FUZZ_SECONDS for each of the fuzzers.
FUZZ_SECONDS ?= 5
fuzz: setup
	@scripts/fuzz.sh $(FUZZ_SECONDS)

# Six compiled models on 16 threads, with errors, forks and swapped weights between the calls: `make soak SECONDS=60` or
# `CALLS=20000`.
soak: setup
	@scripts/soak.sh $(if $(CALLS),calls=$(CALLS),seconds=$(or $(SECONDS),900))

# Random programs at nine sizes each, against eager PyTorch: `make fuzz-programs N=20000 SEED=7`. Those that fail are
# shrunk and written to build/found-programs.
N ?= 1000
SEED ?= 0
fuzz-programs: setup
	@cd test/python && ../../$(PY) -m programs --count $(N) --seed $(SEED) --failures ../../$(BUILD)/found-programs

# Random models that keep state, against eager PyTorch: `make fuzz-state N=5000 SEED=7`.
fuzz-state: setup
	@cd test/python && ../../$(PY) -m state_programs --count $(N) --seed $(SEED)

# A worker for each core; their idle threads must not spin away the others' time. With another PyTorch than .venv's:
# `make pytest TORCH=2.12.1`.
pytest: setup
	@scripts/setup.sh tests
	@$(if $(TORCH),scripts/setup.sh torch $(TORCH))
	@$(if $(TORCH),DISC_ANY_TORCH=1 PYTHONPATH=$(CURDIR)/$(BUILD)/torch-$(TORCH)) OMP_WAIT_POLICY=passive $(PY) -m pytest -n $$(nproc) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

# The generated part of docs/reference, checked in; `make check` says when it is stale.
docs: setup
	@$(PY) tools/gen_reference.py
	@$(PY) tools/gen_ops.py
	@$(PY) tools/gen_c_api.py
	@$(PY) tools/gen_cli.py

# The documentation as a site, in build/site, with all links checked; in an environment of its own.
docs-site: setup
	@[ -x .venv-docs/bin/mkdocs ] || { python3 -m venv .venv-docs && .venv-docs/bin/pip install -q -r docs/requirements.txt; }
	@PYTHONPATH=python .venv-docs/bin/mkdocs build --strict -q -d build/site

# PyTorch's OpInfo database, whole; parts of it: `make opinfo OPINFO_ARGS='--dtypes bf16 nn.functional.*'`.
OPINFO_ARGS ?= --together --samples 2
opinfo: setup
	@cd test/python && ../../$(PY) -m opinfo $(OPINFO_ARGS)

# ONNX's node tests, whole: `make onnx-nodes ONNX_ARGS='--shrink'`, `make onnx-nodes ONNX_ARGS=test_gru`.
onnx-nodes: setup
	@$(PY) test/python/onnx_nodes.py $(ONNX_ARGS)

format: setup
	@git ls-files '*.cpp' '*.h' | xargs -r clang-format-22 -i
	@$(PY) -m ruff check --fix -q . ; $(PY) -m ruff format -q .

clean:
	rm -rf $(BUILD) python/disc/_*.so python/disc/lib python/disc/include
