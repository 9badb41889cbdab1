# Every target sets up what it needs first (scripts/setup.sh: system packages, .venv, pip packages, the build) and
# is quick when that is done already.
SHELL := /bin/bash
PY := .venv/bin/python
BUILD := build

.DEFAULT_GOAL := build
.PHONY: build setup demo test check lit runtime pytest docs format clean

build: setup

setup:
	@scripts/setup.sh

demo: setup
	@$(PY) examples/minilm.py

# The cheap checks come first, so that a slip shows within seconds; pytest's closing line is the last.
test: setup check lit runtime pytest

check: setup
	@scripts/check.sh

lit: setup
	@.venv/bin/lit -sv -Dbuild=$(BUILD) test/lit

# The runtime on its own, without the compiler.
runtime: setup
	@ninja -C $(BUILD) disc-runtime-test >/dev/null
	@$(BUILD)/test/runtime/disc-runtime-test

pytest: setup
	@$(PY) -m pytest $(PYTEST_ARGS)

# The generated part of docs/reference, checked in; `make check` says when it is stale.
docs: setup
	@$(PY) tools/gen_reference.py

format: setup
	@git ls-files '*.cpp' '*.h' | xargs -r clang-format-22 -i
	@$(PY) -m ruff check --fix -q . ; $(PY) -m ruff format -q .

clean:
	rm -rf $(BUILD) python/disc/_native*.so
