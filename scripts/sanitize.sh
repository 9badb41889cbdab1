#!/usr/bin/env bash
# Builds the runtime and its tests with clang's sanitizers, without LLVM, and runs them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A child of fork() that starts threads is what one of the tests is about.
# Memory that there is not is an error to report, as without a sanitizer.
export TSAN_OPTIONS=die_after_fork=0:halt_on_error=1:allocator_may_return_null=1
export ASAN_OPTIONS=detect_stack_use_after_return=1:allocator_may_return_null=1

run() {
  local name=$1 sanitizers=$2 log
  shift 2
  cmake -S test/runtime -B "build/$name" -G Ninja -DDISC_SANITIZE="$sanitizers" >/dev/null
  nice ninja -C "build/$name" disc-runtime-test "$@" >"build/$name/build.log" 2>&1 || { tail -n 30 "build/$name/build.log"; return 1; }
  log=$("build/$name/disc-runtime-test" 2>&1) || { grep -v '^ok ' <<<"$log"; return 1; }
  printf '%-28s %s\n' "$sanitizers" "$(tail -n 1 <<<"$log")"
  [ $# -gt 0 ] || return 0
  log=$("build/$name/$1" 2>&1) || { grep -v '^ok ' <<<"$log"; return 1; }
  printf '%-28s %s\n' "$sanitizers" "$(grep 'faults walked' <<<"$log")"
}

run asan address,undefined disc-runtime-fault-test
# The fault test has allocation functions of its own, as ThreadSanitizer does.
run tsan thread
