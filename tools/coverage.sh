#!/usr/bin/env bash
# What the tests run of each module, in lines, regions and functions: tools/coverage.sh JOBS
# Prints a table; the report by line is build/coverage/report/index.html. Run by `make test-long PARTS=coverage`.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=build/coverage
tools/build.sh coverage "$1"
rm -rf "$folder/counts" "$folder/report"
mkdir -p "$folder/counts"
# %m: one file a program, into which all of its runs add; %c would lose what a killed program counted.
LLVM_PROFILE_FILE="$PWD/$folder/counts/%m.profraw" ctest --preset coverage -j "$1" --output-log "$folder/tests.log" >/dev/null ||
  printf 'coverage: some tests failed, see %s: what they ran counts all the same\n' "$folder/tests.log"
find "$folder/counts" -name '*.profraw' >"$folder/counts/list"
llvm-profdata-19 merge -sparse -f "$folder/counts/list" -o "$folder/counts/all.profdata"
programs=()
for program in "$folder"/tests/*_tests "$folder/motley"; do programs+=(-object "$program"); done
ours=(-instr-profile="$folder/counts/all.profdata" -ignore-filename-regex='(_test\.cc|/tests/|/fuzz/|/\.cache/|/usr/|/build/)')
llvm-cov-19 show "${programs[@]}" "${ours[@]}" -format=html -output-dir="$folder/report"
llvm-cov-19 export "${programs[@]}" "${ours[@]}" -summary-only >"$folder/summary.json"
tools/coverage_table.py "$folder/summary.json"
