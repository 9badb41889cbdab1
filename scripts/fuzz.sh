#!/usr/bin/env bash
# Runs the fuzzers of test/fuzz: fuzz.sh [SECONDS] [SEED], each for so many seconds; FUZZERS='Trees Http' picks some.
# Inputs that reach new code are kept in build/fuzz/corpus. An input that breaks something is left in
# build/fuzz/findings, and `build/fuzz/fuzz-NAME FILE` runs it again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-8} seed=${2:-1} dir=build/fuzz
names=${FUZZERS:-Safetensors Tensors Seal Trees Functions Guards Passes Request Infer Tokenizer Http onnx pt2}

sanitized=() passes=""
for name in $names; do
  case $name in
    Passes) passes=fuzz-Passes ;;
    onnx | pt2) ;;
    *) sanitized+=("fuzz-$name") ;;
  esac
done
mkdir -p $dir/findings
if [[ " $names " == *" Guards "* ]]; then
  nice .venv/bin/python test/fuzz/models.py $dir/models
fi
if [ ${#sanitized[@]} -gt 0 ]; then
  cmake -S test/runtime -B $dir -G Ninja -DDISC_SANITIZE=address,undefined -DDISC_FUZZ=ON >/dev/null
  nice ninja -C $dir "${sanitized[@]}" >$dir/build.log 2>&1 || { tail -n 30 $dir/build.log; exit 1; }
fi
if [ -n "$passes" ]; then
  nice ninja -C build fuzz-Passes >$dir/build.log 2>&1 || { tail -n 30 $dir/build.log; exit 1; }
  ln -sf ../tools/disc-opt/fuzz-Passes $dir/fuzz-Passes
fi

# A broadcast tensor may claim more than there is memory for; that is an error to report, not one of ours.
export ASAN_OPTIONS=allocator_may_return_null=1:max_allocation_size_mb=256
failed=0
for name in $names; do
  if [ $name = onnx ] || [ $name = pt2 ]; then
    nice .venv/bin/python test/fuzz/files.py $name "$seconds" "$seed" 2>$dir/$name.log || failed=1
    continue
  fi
  corpus=$dir/corpus/$name
  mkdir -p "$corpus"
  python3 test/fuzz/seeds.py $name "$corpus"
  options=(-max_len=2048 -rss_limit_mb=2048)
  [ $name != Passes ] || options=(-max_len=16384 -rss_limit_mb=4096 -detect_leaks=0)
  [ ! -f test/fuzz/$name.dict ] || options+=(-dict=test/fuzz/$name.dict)
  log=$dir/$name.log
  # Behind its own limits: with a damaged heap, libFuzzer's handlers wait for malloc for ever.
  timeout --kill-after=10 $((seconds + 300)) $dir/fuzz-$name "$corpus" -max_total_time="$seconds" -seed="$seed" -timeout=100 "${options[@]}" \
    -artifact_prefix=$dir/findings/$name- -print_final_stats=1 >"$log" 2>&1 || { tail -n 25 "$log"; failed=1; continue; }
  printf '%-14s %s executions in %s s, corpus of %s\n' "$name" \
    "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" "$seconds" "$(find "$corpus" -type f | wc -l)"
done
exit $failed
