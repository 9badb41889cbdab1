#!/usr/bin/env bash
# Checks and measures DISC on a machine with an NVIDIA GPU. The compiler need not be there:
#   bench/gpu.sh build [FOLDER]             where DISC is built: compiles libraries into FOLDER (build/gpu)
#   bench/gpu.sh run [FOLDER] [RESULTS]     on the machine with the GPU: PyTorch is all that it needs
# What is to be carried is this repository's bench/ and FOLDER.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${2:-build/gpu}
case ${1:-} in
build)
  exec "${PYTHON:-.venv/bin/python}" -m bench.gpu.build "$folder"
  ;;
run)
  results=${3:-$folder/results.json}
  "${PYTHON:-python3}" -m bench.gpu.run "$folder" "$results"
  # The kernels again under the sanitizer, at shapes that it gets through in time.
  if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck synccheck; do
      compute-sanitizer --tool "$tool" --error-exitcode 1 "${PYTHON:-python3}" -m bench.gpu.run "$folder" \
        "$folder/sanitized.json" --check-only --largest 10000
    done
  fi
  ;;
*)
  sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
  exit 2
  ;;
esac
