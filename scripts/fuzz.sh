#!/usr/bin/env bash
# Runs the fuzzers of test/fuzz: fuzz.sh [SECONDS] [SEED]. What they find interesting is kept in build/fuzz/corpus; an
# input that breaks something is left in build/fuzz/findings, and `build/fuzz/fuzz-NAME FILE` repeats it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-8} seed=${2:-1} dir=build/fuzz
names=${FUZZERS:-Safetensors Tensors Seal Functions Trees Request Tokenizer Http}

cmake -S test/runtime -B $dir -G Ninja -DDISC_SANITIZE=address,undefined -DDISC_FUZZ=ON >/dev/null
nice ninja -C $dir $(printf 'fuzz-%s ' $names) >$dir/build.log 2>&1 || { tail -n 30 $dir/build.log; exit 1; }
mkdir -p $dir/findings
# A broadcast tensor may claim more than there is memory for; that is an error to report, not one of ours.
export ASAN_OPTIONS=allocator_may_return_null=1:max_allocation_size_mb=256
for name in $names; do
  corpus=$dir/corpus/$name
  mkdir -p "$corpus"
  python3 test/fuzz/seeds.py $name "$corpus"
  dictionary=test/fuzz/$name.dict
  log=$dir/$name.log
  $dir/fuzz-$name "$corpus" -max_total_time="$seconds" -seed="$seed" -max_len=2048 -timeout=100 -rss_limit_mb=2048 \
    -artifact_prefix=$dir/findings/ -print_final_stats=1 $([ -f $dictionary ] && echo -dict=$dictionary) \
    >"$log" 2>&1 || { tail -n 25 "$log"; exit 1; }
  printf '%-14s %s executions in %s s, corpus of %s\n' "$name" \
    "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" "$seconds" "$(find "$corpus" -type f | wc -l)"
done
