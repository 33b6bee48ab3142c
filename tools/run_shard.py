#!/usr/bin/env python3
"""Runs one shard of a GoogleTest program and prints only what matters of it:

    run_shard.py [--shard I --of N] [--times FOLDER] [--hang SECONDS] [--slow FILE]... PROGRAM [ARGUMENT...]

The output of a test that passes is dropped. A test that fails is shown whole; one that ends the program, or that does
not end by itself in --hang seconds, is named. The times of all tests go to FOLDER, for tools/slowest_tests.py.
Tests that a --slow file lists, a Suite.Name or a pattern with "*" a line, are left out unless MOTLEY_SLOW_TESTS is set.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading

HANG_SECONDS = 900  # no test takes a tenth of that on a busy machine
BEGINS = re.compile(r"\[ RUN      \] (\S+)")
ENDS = re.compile(r"\[(       OK |  FAILED  )\] (\S+?),? .*\((\d+) ms\)|\[(       OK |  FAILED  )\] (\S+) \((\d+) ms\)")


class Shard:
    """Reads a program's output while it runs."""

    def __init__(self, program: str, hang: float):
        self.program = pathlib.Path(program).name
        self.hang = hang
        self.running = ""  # the test
        self.lines: list[str] = []  # of it
        self.times: dict[str, int] = {}  # ms
        self.failed: list[str] = []
        self.hung = ""

    def read(self, process: subprocess.Popen) -> None:
        watch = self.watch(process)
        for line in process.stdout:
            if found := BEGINS.match(line):
                watch.cancel()
                self.running, self.lines = found[1], []
                watch = self.watch(process)
            self.lines.append(line)
            if found := ENDS.match(line):
                name, milliseconds = found[2] or found[5], found[3] or found[6]
                if name == self.running:
                    self.times[name] = int(milliseconds)
                    if "FAILED" in line:
                        self.failed.append(name)
                        print(*self.lines, sep="", flush=True)
                    self.running, self.lines = "", []
        watch.cancel()
        process.wait()

    def watch(self, process: subprocess.Popen) -> threading.Timer:
        def stop() -> None:
            self.hung = self.running or "what stands before and after the tests"
            process.send_signal(signal.SIGABRT)

        watch = threading.Timer(self.hang, stop)
        watch.daemon = True
        watch.start()
        return watch

    def verdict(self, status: int) -> int:
        """Prints what became of it; the exit status."""
        seconds = sum(self.times.values()) / 1000
        if status == 0 and not self.failed and self.times:
            print(f"{self.program}: {len(self.times)} tests passed in {seconds:.1f} s")
            return 0
        if self.hung:
            print(*self.lines, sep="")
            print(f"{self.program}: {self.hung} did not end in {self.hang:.0f} s: it hangs")
        elif self.running or status not in (0, 1):
            how = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
            print(*self.lines, sep="")
            print(f"{self.program}: ended by {how} in {self.running or 'no test'}")
        elif not self.times:
            print(*self.lines, sep="")
            print(f"{self.program}: no test ran")
        elif status != 0 and not self.failed:
            print(*self.lines, sep="")
            print(f"{self.program}: status {status}, though no test failed")
        print(f"{self.program}: {len(self.failed)} of {len(self.times)} tests failed", *self.failed, sep="\n  ")
        return 1


def without(slow: list[pathlib.Path]) -> list[str]:
    """What GoogleTest must be told so that it leaves these out."""
    if not slow or os.environ.get("MOTLEY_SLOW_TESTS"):
        return []
    lines = [line for file in slow for line in file.read_text().splitlines()]
    names = [line for line in lines if line and not line.startswith("#")]
    return ["--gtest_filter=-" + ":".join(name if "*" in name else f"{name}:*/{name}/*" for name in names)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shard", type=int, default=0)
    parser.add_argument("--of", type=int, default=1)
    parser.add_argument("--times", type=pathlib.Path)
    parser.add_argument("--hang", type=float, default=HANG_SECONDS)
    parser.add_argument("--slow", type=pathlib.Path, action="append", default=[])
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()

    shard = Shard(arguments.program, arguments.hang)
    environment = os.environ | {"GTEST_TOTAL_SHARDS": str(arguments.of), "GTEST_SHARD_INDEX": str(arguments.shard)}
    # A sanitizer names lines by it where the compiler's own program is not installed.
    environment.setdefault("ASAN_OPTIONS", "allow_addr2line=1")
    command = [arguments.program, "--gtest_color=no", *without(arguments.slow), *arguments.arguments]
    with subprocess.Popen(command, env=environment, text=True, errors="replace", stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as process:
        shard.read(process)
    if arguments.times is not None:
        arguments.times.mkdir(parents=True, exist_ok=True)
        times = arguments.times / f"{shard.program}.{arguments.shard}.json"
        times.write_text(json.dumps(shard.times))
    return shard.verdict(process.returncode)


if __name__ == "__main__":
    sys.exit(main())
