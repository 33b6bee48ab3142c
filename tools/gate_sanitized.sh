#!/usr/bin/env bash
# The sanitized tests of the gate: tools/gate_sanitized.sh build JOBS | test. All others are in `make test-long`.
set -euo pipefail
cd "$(dirname "$0")/.."
case $1 in
  build) tools/build.sh asan "$2" core_tests server_tests fuzz_replay ;;
  test) tools/test.sh asan -R '^(core_tests|server_tests|fuzz)\.' ;;
esac
