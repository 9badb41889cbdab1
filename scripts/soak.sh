#!/usr/bin/env bash
# Compiles the models of test/soak and runs them on many threads: soak.sh seconds=900 | calls=20000 [threads=16] [seed=1].
# Prints what was done and how resident memory went; fails if a result differs or memory grows.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=build/soak
mkdir -p $folder
nice .venv/bin/python test/soak/models.py $folder/models
nice ninja -C build disc-soak >$folder/build.log 2>&1 || { tail -n 30 $folder/build.log; exit 1; }
build/test/runtime/disc-soak $folder/models "$@"
