#!/usr/bin/env bash
# The peers' environment, .venv-bench: made once, then quick. DISC's own environment stays free of them.
#
#   PYTHON=python3.12   the interpreter to make it with (default: python3)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON=${PYTHON:-python3}
VENV=.venv-bench
STAMP=$VENV/.requirements
say() { printf '[bench] %s\n' "$*"; }

key=$(cat bench/requirements.txt constraints.txt | sha256sum | cut -d' ' -f1)
[ "$(cat "$STAMP" 2>/dev/null)" = "$key" ] && exit 0
[ -x $VENV/bin/python ] || "$PYTHON" -m venv $VENV || { rm -rf $VENV; say "error: cannot create $VENV"; exit 1; }
say "installing the peers into $VENV (several minutes the first time)"
args=()
# The CPU build of torch, as scripts/setup.sh prefers it.
if $VENV/bin/python - <<'PY' 2>/dev/null
import urllib.request as r
r.urlopen(r.Request("https://download.pytorch.org/whl/cpu/torch/", method="HEAD"), timeout=5)
PY
then args+=(--extra-index-url https://download.pytorch.org/whl/cpu); fi
log=$(mktemp)
if ! $VENV/bin/python -m pip install --disable-pip-version-check --no-input "${args[@]}" \
     -c constraints.txt -r bench/requirements.txt >"$log" 2>&1; then
  tail -n 15 "$log" >&2
  say "error: pip could not install bench/requirements.txt; full log: $log"
  exit 1
fi
rm -f "$log"
echo "$key" >"$STAMP"
