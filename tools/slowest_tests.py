#!/usr/bin/env python3
"""Prints the 30 slowest tests of the last ctest run in a build, and warns of those that come near a limit:

    slowest_tests.py BUILD

A test of a GoogleTest program is a case, by what tools/run_shard.py left in BUILD/test_times; others are whole commands.
"""

import json
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

import run_shard

SHOWN = 30
NEAR = 0.5  # of a limit


def limits(build: pathlib.Path) -> dict[str, float]:
    run = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], capture_output=True, check=True)
    return {test["name"]: each["value"] for test in json.loads(run.stdout)["tests"]
            for each in test.get("properties", []) if each["name"] == "TIMEOUT"}


def main() -> int:
    build = pathlib.Path(sys.argv[1])
    commands = {case.get("name"): float(case.get("time"))
                for case in xml.etree.ElementTree.parse(build / "tests.xml").iter("testcase")}
    cases = {}
    programs = set()
    for path in (build / "test_times").glob("*.json"):
        program = path.name.split(".")[0]
        programs.add(program)
        cases |= {f"{program} {name}": ms / 1000 for name, ms in json.loads(path.read_text()).items()}
    alone = {name: seconds for name, seconds in commands.items() if name.split(".")[0] not in programs}
    slowest = sorted((cases | alone).items(), key=lambda row: -row[1])[:SHOWN]
    print(f"{len(cases)} cases and {len(alone)} commands; the slowest, in seconds:")
    for name, seconds in slowest:
        print(f"{seconds:8.1f}  {name}")
    bound = dict.fromkeys(cases, run_shard.HANG_SECONDS) | limits(build)
    for name, seconds in (cases | commands).items():
        if name in bound and seconds > NEAR * bound[name]:
            print(f"warning: {name} took {seconds:.0f} s of the {bound[name]:.0f} s that it may take")
    return 0


if __name__ == "__main__":
    sys.exit(main())
