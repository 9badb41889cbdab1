#!/usr/bin/env bash
# Brings a fresh Debian 12 machine to a built tree: system packages, .venv, pip packages, CMake build.
# Each step is skipped when it is done already, so calling this before every make target costs about a second.
#
#   PYTHON=python3.12   the interpreter that .venv is made with (default: python3)
#   JOBS=n              parallel compilations (default: all cores)
#
# setup.sh packages installs the system packages alone, setup.sh tests what only tests need, setup.sh pictures what the
# pictures of the documentation need on top, setup.sh torch VERSION another PyTorch, into build/torch-VERSION.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON=${PYTHON:-python3}
BUILD=build
PACKAGES=(
  build-essential ca-certificates ccache cmake git ninja-build python3-dev python3-venv
  clang-22 clang-format-22 lld-22
  libmlir-22-dev llvm-22-dev mlir-22-tools liblld-22-dev zlib1g-dev libzstd-dev
  libxxhash-dev nlohmann-json3-dev libclang-rt-22-dev
  libcpp-httplib-dev libutf8proc-dev pkg-config
  # Headers for the runtime: 11 MB to download.
  libeigen3-dev libboost1.81-dev
  # gRPC of examples/service: 13 MB to download.
  libgrpc++-dev libprotobuf-dev protobuf-compiler-grpc
  # The runtime for other machines, and what runs their code here.
  g++-aarch64-linux-gnu g++-arm-linux-gnueabihf qemu-user
)
# Libraries that examples/backends calls.
TEST_PACKAGES=(libopenblas-dev libdnnl-dev)

bold=; plain=
if [ -t 1 ]; then bold=$'\033[1m'; plain=$'\033[0m'; fi
say() { printf '%s[setup]%s %s\n' "$bold" "$plain" "$*"; }
die() { printf '[setup] error: %s\n' "$1" >&2; shift; [ $# -eq 0 ] || printf '        %s\n' "$@" >&2; exit 1; }

missing_packages() {
  local status
  for p in "$@"; do
    status=$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null || true)
    [ "$status" = installed ] || echo "$p"
  done
}

# install_system_packages PACKAGE...
install_system_packages() {
  local missing sudo=() log
  # Without dpkg (another distribution) the configure step says what it does not find.
  command -v dpkg-query >/dev/null || { say "not a Debian system: expecting LLVM/MLIR 22, CMake, Ninja to be there"; return; }
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} -eq 0 ] && return
  say "installing system packages: ${missing[*]}"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "these Debian packages are missing, and neither root nor sudo is available:" \
      "${missing[*]}" "Ask an administrator to run: apt-get install ${missing[*]}"
    sudo=(sudo)
  fi
  log=$(mktemp)
  if ! { "${sudo[@]}" apt-get update -q &&
         "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"; } \
         >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    die "apt-get could not install: ${missing[*]}" \
      "The LLVM 22 packages come with Debian 12's updates (bookworm-security) or from https://apt.llvm.org." \
      "Check the network and /etc/apt/sources.list*, then run make again. Full log: $log"
  fi
  rm -f "$log"
}

# The plain PyPI build of torch brings gigabytes of CUDA libraries. The CPU build is preferred where its index answers.
find_torch_index() {
  if .venv/bin/python - <<'PY' 2>/dev/null
import urllib.request as r
r.urlopen(r.Request("https://download.pytorch.org/whl/cpu/torch/", method="HEAD"), timeout=5)
PY
  then torch_index=(--extra-index-url https://download.pytorch.org/whl/cpu); else torch_index=(); fi
}

install_python_packages() {
  local key stamp=.venv/.disc-requirements log
  if [ ! -x .venv/bin/python ]; then
    say "creating .venv ($("$PYTHON" --version 2>&1))"
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "Python 3.11 or newer is needed, $PYTHON is older"
    "$PYTHON" -m venv .venv || { rm -rf .venv; false; } || die "cannot create .venv" "Install the package python3-venv, or set PYTHON"
  fi
  key=$(cat requirements*.txt constraints.txt pyproject.toml | sha256sum | cut -d' ' -f1)
  [ "$(cat "$stamp" 2>/dev/null)" = "$key" ] && return
  say "installing Python packages into .venv (several minutes the first time)"
  find_torch_index
  log=$(mktemp)
  if ! { .venv/bin/python -m pip install --disable-pip-version-check --no-input "${torch_index[@]}" -r requirements-dev.txt &&
         # The distribution was called disc before 0.1.1; its commands have the same names.
         .venv/bin/python -m pip uninstall --disable-pip-version-check --no-input -y disc &&
         # Points .venv at python/ and registers the entry points; the native module is built below, by Ninja.
         .venv/bin/python -m pip install --disable-pip-version-check --no-input --no-deps --no-build-isolation \
           --config-settings wheel.cmake=false -e .; } >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    die "pip could not install the packages of requirements-dev.txt" \
      "Check the network and pip's configuration (pip config list), then run make again. Full log: $log"
  fi
  rm -f "$log"
  echo "$key" >"$stamp"
}

# What only tests need: viewers, and clients of examples/service, whose dependencies contradict those of .venv. Triton's
# server comes in a Python package of which tests use the server alone: the dependencies of its Python code, among them
# an old NumPy, are left out.
install_test_packages() {
  install_into .venv requirements-test.txt "viewers"
  [ -x .venv-clients/bin/python ] || "$PYTHON" -m venv .venv-clients || { rm -rf .venv-clients; false; } ||
    die "cannot create .venv-clients"
  install_into .venv-clients test/kserve/requirements.txt "clients of the service"
  install_into .venv-clients test/triton/requirements.txt "server of Triton" --no-deps
}

# What pictures of viewers need: a browser, a driver for it, and pages of viewers.
install_picture_packages() {
  install_system_packages chromium fonts-dejavu-core
  install_into .venv requirements-pictures.txt "browser's driver"
}

# install_into VENV FILE WHAT [OPTION...]: the packages of a requirements file, unless they are there; options are pip's.
install_into() {
  local stamp key log
  stamp=$1/.disc-$(basename "$(dirname "$2")")-$(basename "$2")
  key=$(cat "$2" constraints.txt | sha256sum | cut -d' ' -f1)
  [ "$(cat "$stamp" 2>/dev/null)" = "$key" ] && return
  say "installing the $3 that tests need into $1 (about half a minute)"
  log=$(mktemp)
  if ! "$1/bin/python" -m pip install --disable-pip-version-check --no-input "${@:4}" -r "$2" >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    die "pip could not install the packages of $2" \
      "Check the network and pip's configuration (pip config list), then run make again. Full log: $log"
  fi
  rm -f "$log"
  echo "$key" >"$stamp"
}

# install_torch VERSION: beside .venv, which stays as it is; the first on PYTHONPATH is the one that is imported.
install_torch() {
  local dir=$BUILD/torch-$1 log
  [ -e "$dir/.complete" ] && return
  say "installing torch $1 into $dir (minutes, gigabytes where pip's index has builds with CUDA only)"
  rm -rf "$dir"
  find_torch_index
  log=$(mktemp)
  if ! .venv/bin/python -m pip install --disable-pip-version-check --no-input "${torch_index[@]}" --target "$dir" \
    "torch==$1" >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    die "pip could not install torch $1" "Full log: $log"
  fi
  rm -f "$log"
  touch "$dir/.complete"
}

build() {
  local log=$BUILD/configure.log
  mkdir -p "$BUILD"
  if [ ! -f "$BUILD/build.ninja" ]; then
    say "configuring"
    cmake -S . -B "$BUILD" -G Ninja -DPython_EXECUTABLE="$PWD/.venv/bin/python" >"$log" 2>&1 || {
      rm -f "$BUILD/build.ninja"; tail -n 25 "$log" >&2
      die "CMake could not configure the build" "Full log: $log"; }
  fi
  # Ninja's own "no work to do" is noise before every target.
  if ! ninja -C "$BUILD" -n 2>/dev/null | grep -q 'no work to do'; then
    say "building"
    ninja -C "$BUILD" ${JOBS:+-j "$JOBS"} || die "the build failed"
  fi
}

install_system_packages "${PACKAGES[@]}"
[ "${1:-}" != packages ] || exit 0
install_python_packages
[ "${1:-}" != tests ] || { install_system_packages "${TEST_PACKAGES[@]}"; install_test_packages; exit; }
[ "${1:-}" != pictures ] || { install_test_packages; install_picture_packages; exit; }
[ "${1:-}" != torch ] || { install_torch "$2"; exit; }
build
