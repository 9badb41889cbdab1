#!/usr/bin/env bash
# Branch coverage of lib/Runtime by its own tests and the fault test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
dir=build/coverage

cmake -S test/runtime -B $dir -G Ninja -DDISC_COVERAGE=ON >/dev/null
nice ninja -C $dir disc-runtime-test disc-runtime-fault-test >$dir/build.log 2>&1 || { tail -n 30 $dir/build.log; exit 1; }
rm -f $dir/*.profraw
for test in disc-runtime-test disc-runtime-fault-test; do
  # %m: a file per program and library; %c: it is mapped, so that children of fork() add to it though they end by _exit().
  LLVM_PROFILE_FILE="$PWD/$dir/$test-%m%c.profraw" $dir/$test >$dir/$test.log 2>&1 || { grep -v '^ok ' $dir/$test.log; exit 1; }
done
llvm-profdata-22 merge -sparse $dir/*.profraw -o $dir/tests.profdata
report=$(llvm-cov-22 report $dir/disc-runtime-test -object $dir/disc-runtime-fault-test -object $dir/libdisc-runtime-test-library.so \
  -instr-profile=$dir/tests.profdata -show-region-summary=0 -show-branch-summary "$PWD/lib/Runtime" 2>/dev/null)
# Columns of the report: functions, lines, branches; of each how many, how many missed, the share.
awk '/^-+$/ { next } $NF ~ /%|-/ { file = $1; sub(/.*lib\/Runtime\//, "", file)
                   printf "%-32s lines %8s  branches %6s of %6s  %8s\n", file, $7, $8 - $9, $8, $10 }' <<<"$report"
