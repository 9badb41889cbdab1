#!/usr/bin/env bash
# The checks that need no build: layering, Python lint and types, C++ format, documentation.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PY=.venv/bin/python
failed=0

check() {
  local what=$1; shift
  if out=$("$@" 2>&1); then
    printf '%-16s ok\n' "$what"
  else
    printf '%-16s FAILED\n%s\n' "$what" "$out"; failed=1
  fi
}

clang_format() {
  local bad
  bad=$(git ls-files '*.cpp' '*.h' | xargs -r -P "$(nproc)" -n 16 clang-format-22 --dry-run -Werror 2>&1 |
    grep -oE '^[^: ]+\.(cpp|h):' | sort -u)
  [ -z "$bad" ] || { echo "$bad"; echo 'run: make format'; return 1; }
}

check "layers" $PY tools/check_layers.py
check "ruff" $PY -m ruff check .
check "ruff format" $PY -m ruff format --check .
check "mypy" $PY -m mypy
check "clang-format" clang_format
check "reference docs" $PY tools/gen_reference.py --check
check "C reference" $PY tools/gen_c_api.py --check
check "commands" $PY tools/gen_cli.py --check
check "documentation" $PY tools/check_docs.py
check "language" $PY tools/check_language.py
exit $failed
