#!/usr/bin/env bash
# Runs the tests of a build and names the slowest: tools/test.sh PRESET [CTEST ARGUMENT...]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
folder=build/$preset
rm -rf "$folder/test_times"
status=0
ctest --preset "$preset" --output-junit "$PWD/$folder/tests.xml" "$@" || status=$?
tools/slowest_tests.py "$folder" || true
exit "$status"
