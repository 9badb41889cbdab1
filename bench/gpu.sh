#!/usr/bin/env bash
# Checks and measures DISC on a machine with an NVIDIA GPU. The compiler need not be there:
#   bench/gpu.sh build [FOLDER]             where DISC is built: compiles libraries into FOLDER (build/gpu)
#   bench/gpu.sh run [FOLDER] [OPTIONS]     on the machine with the GPU: the conformance suite, then checks and times, in
#                                           FOLDER/results.json;
#                                           PyTorch is all that it needs; options are those of bench/gpu/run.py
#   bench/gpu.sh sanitize [FOLDER]          there, with NVIDIA's compute-sanitizer
# What is to be carried is this repository's bench/ and FOLDER. `run` ends after 9 minutes (--minutes).
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${2:-build/gpu}
case ${1:-} in
build)
  "${PYTHON:-.venv/bin/python}" -m bench.gpu.build "$folder"
  exec "${PYTHON:-.venv/bin/python}" -m bench.gpu.cases build "$folder/cases.tar.xz"
  ;;
run)
  # What is wrong with a case hinders no measurement.
  status=0
  "${PYTHON:-python3}" -m bench.gpu.cases run "$folder/cases.tar.xz" || status=1
  "${PYTHON:-python3}" -m bench.gpu.run "$folder" "$folder/results.json" "${@:3}"
  exit "$status"
  ;;
sanitize)
  # At shapes that it gets through in time.
  for tool in memcheck racecheck synccheck; do
    compute-sanitizer --tool "$tool" --target-processes all --error-exitcode 1 "${PYTHON:-python3}" -m bench.gpu.run \
      "$folder" "$folder/sanitized.json" --check-only --largest 10000 --minutes 60
  done
  ;;
*)
  sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
  exit 2
  ;;
esac
