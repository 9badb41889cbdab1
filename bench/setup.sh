#!/usr/bin/env bash
# The peers' environments: made once, then quick. DISC's own environment stays free of them.
#
#   .venv-bench      every peer but zentorch, and the harness
#   .venv-zentorch   AMD's zentorch; only on AMD's processors, and left out if pip cannot install it
#
#   PYTHON=python3.12   the interpreter to make them with (default: python3)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON=${PYTHON:-python3}
say() { printf '[bench] %s\n' "$*"; }

args=()
# The CPU build of torch, as scripts/setup.sh prefers it.
cpu_index() {
  [ ${#args[@]} -gt 0 ] || args=(--disable-pip-version-check --no-input)
  if "$PYTHON" - <<'PY' 2>/dev/null
import urllib.request as r
r.urlopen(r.Request("https://download.pytorch.org/whl/cpu/torch/", method="HEAD"), timeout=5)
PY
  then args+=(--extra-index-url https://download.pytorch.org/whl/cpu); fi
}

# install VENV REQUIREMENTS: an environment with these packages, unless it has them already.
install() {
  local venv=$1 requirements=$2 key log
  key=$(cat "$requirements" constraints.txt | sha256sum | cut -d' ' -f1)
  [ "$(cat "$venv/.requirements" 2>/dev/null)" = "$key" ] && return 0
  [ -x "$venv/bin/python" ] || "$PYTHON" -m venv "$venv" || { rm -rf "$venv"; say "error: cannot create $venv"; return 1; }
  say "installing $requirements into $venv (several minutes the first time)"
  [ ${#args[@]} -gt 0 ] || cpu_index
  log=$(mktemp)
  if ! "$venv/bin/python" -m pip install "${args[@]}" -c constraints.txt -r "$requirements" >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    say "error: pip could not install $requirements; full log: $log"
    return 1
  fi
  rm -f "$log"
  echo "$key" >"$venv/.requirements"
}

install .venv-bench bench/requirements.txt
if grep -q AuthenticAMD /proc/cpuinfo 2>/dev/null && ! install .venv-zentorch bench/requirements-zentorch.txt; then
  say "without zentorch"
fi
for library in libtcmalloc_minimal.so.4 libjemalloc.so.2; do
  compgen -G "/usr/lib/*/$library" >/dev/null ||
    say "no $library: peers are not tried with it (apt-get install libtcmalloc-minimal4 libjemalloc2)"
done
