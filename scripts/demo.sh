#!/usr/bin/env bash
# Compiles MiniLM, embeds sentences of many lengths, compares with eager PyTorch and measures both.
#
#   demo.sh                 with the build of this tree, which setup.sh makes first
#   DISC_WHEEL=1 demo.sh    with the newest wheel in dist/ for $PYTHON (default: python3), without a C++ build, in
#                           .venv-demo. The wheel must be of this tree's version.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ "${DISC_WHEEL:-0}" != 1 ]; then
  scripts/setup.sh
  exec .venv/bin/python examples/minilm.py "$@"
fi

die() { printf '[demo] error: %s\n' "$*" >&2; exit 1; }
python=${PYTHON:-python3}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
wheel=$(ls -t dist/disc_compiler-"$version"-"$tag"-*.whl 2>/dev/null | head -n 1 || true)
[ -n "$wheel" ] || die "dist/ has no wheel of version $version for $tag; run make wheel PYTHONS=$python, or make demo without DISC_WHEEL"
stamp=.venv-demo/.disc-wheel key=$(sha256sum "$wheel")
if [ "$(cat "$stamp" 2>/dev/null)" != "$key" ]; then
  printf '[demo] installing %s into .venv-demo\n' "$wheel"
  rm -rf .venv-demo
  "$python" -m venv .venv-demo
  .venv-demo/bin/python -m pip install -q --no-compile --disable-pip-version-check "$wheel[demo]" >.venv-demo/log 2>&1 ||
    { tail -n 20 .venv-demo/log >&2; die "pip install failed"; }
  echo "$key" >"$stamp"
fi
exec .venv-demo/bin/python examples/minilm.py "$@"
