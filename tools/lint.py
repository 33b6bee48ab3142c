#!/usr/bin/env python3
"""Checks the format, the rules of the house, and clang-tidy: tools/lint.py [--jobs N] BUILD_FOLDER

clang-tidy is slow, so a file that passed is remembered under ~/.cache/motley/tidy by a hash of all that
its result depends on: its preprocessed text, its flags, the settings and the program's version.
"""

import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import re
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIDY = "clang-tidy-19"
# The flags are written for g++, and clang does not know all of its warnings.
TIDY_COMMAND = [TIDY, "--quiet", "--extra-arg=-Wno-unknown-warning-option"]
FORMAT = "clang-format-19"
CODE = (".cc", ".h", ".cu", ".cuh")
LONGEST_FILE = 700  # lines; the aim is 600

# (what, where it is looked for, what to do): one line of a file that matches breaks a rule.
LINE_RULES = [
    (r'#include "\.\.?/', CODE, "include by room: \"base/error.h\""),
    (r'#include "[^/"]+"', CODE, "include by room: \"base/error.h\""),
    (r"#\s*if.*\b(CUDA|__CUDACC__|__CUDA_ARCH__)\b", CODE, "choose in CMake; only the number types may ask the compiler"),
    (r"#include <nlohmann/", CODE, "use base/json.h"),
    (r"\b(TODO|FIXME|XXX)\b", CODE, "do it, or write an issue"),
    (r"\bstd::(cout|cerr)\b", CODE, "write through base/log.h, or the command's output"),
    (r"\bgetenv\(", CODE, "settings come from the command line"),
    (r"\bDISABLED_|GTEST_SKIP", (".cc",), "a test passes or is removed"),
]
EXCEPTIONS = {
    "src/base/number_types.h": {"#\\s*if.*\\b(CUDA|__CUDACC__|__CUDA_ARCH__)\\b"},
    "src/base/json_parse.cc": {"#include <nlohmann/"},
}


def tracked_files() -> list[pathlib.Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def check_format(files: list[pathlib.Path]) -> list[str]:
    run = subprocess.run([FORMAT, "--dry-run", "-Werror", *map(str, files)], capture_output=True, text=True)
    wrong = sorted({line.split(":")[0] for line in run.stderr.splitlines() if "error:" in line})
    return [f"{pathlib.Path(name).relative_to(ROOT)}: not formatted: run make format" for name in wrong]


def check_rules(files: list[pathlib.Path]) -> list[str]:
    findings = []
    for path in files:
        name = str(path.relative_to(ROOT))
        product = name.startswith(("src/", "fuzz/", "tests/"))
        lines = path.read_text().splitlines()
        if name.startswith("src/") and len(lines) > LONGEST_FILE:
            findings.append(f"{name}: {len(lines)} lines: split it by subject (at most {LONGEST_FILE})")
        if path.suffix in (".h", ".cuh") and "#pragma once" not in lines:
            findings.append(f"{name}: no #pragma once")
        if not product:
            continue
        for pattern, suffixes, advice in LINE_RULES:
            if path.suffix not in suffixes or pattern in EXCEPTIONS.get(name, ()):
                continue
            for number, line in enumerate(lines, 1):
                if re.search(pattern, line):
                    findings.append(f"{name}:{number}: {line.strip()}: {advice}")
    return findings


class Tidy:
    """clang-tidy over the .cc files of a compile database, with a cache of what passed."""

    def __init__(self, build: pathlib.Path):
        self.build = build
        self.cache = pathlib.Path.home() / ".cache" / "motley" / "tidy"
        self.cache.mkdir(parents=True, exist_ok=True)
        version = subprocess.run([TIDY, "--version"], capture_output=True, check=True, text=True).stdout
        self.common = version + (ROOT / ".clang-tidy").read_text()
        self.entries = {}
        for entry in json.loads((build / "compile_commands.json").read_text()):
            path = pathlib.Path(entry["file"])
            if path.suffix == ".cc" and path.is_relative_to(ROOT) and not path.is_relative_to(build):
                self.entries.setdefault(path, entry)

    def key(self, entry: dict) -> str:
        words = shlex.split(entry["command"])
        # After the launcher: the compiler and its flags, without the output file.
        start = next(i for i, word in enumerate(words) if re.search(r"(c|g|clang)\+\+(-\d+)?$", word))
        command = words[start:]
        for flag, count in (("-o", 2), ("-MF", 2), ("-MT", 2), ("-MD", 1), ("-c", 1)):
            if flag in command:
                at = command.index(flag)
                del command[at : at + count]
        text = subprocess.run([*command, "-E"], cwd=entry["directory"], capture_output=True, check=True).stdout
        # Places differ between clones, and a comment may hold NOLINT: the source itself counts too.
        root = str(ROOT).encode()
        source = pathlib.Path(entry["file"]).read_bytes()
        material = self.common.encode() + " ".join(command).encode() + text + source
        return hashlib.sha256(material.replace(root, b"")).hexdigest()

    def check(self, path: pathlib.Path) -> str | None:
        passed = self.cache / self.key(self.entries[path])
        if passed.exists():
            return None
        run = subprocess.run([*TIDY_COMMAND, "-p", str(self.build), str(path)], capture_output=True, text=True)
        if run.returncode == 0:
            passed.touch()
            return None
        return run.stdout + run.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("build", type=pathlib.Path)
    arguments = parser.parse_args()
    start = time.monotonic()

    code = [path for path in tracked_files() if path.suffix in CODE]
    findings = check_format(code) + check_rules(code)
    tidy = Tidy(arguments.build.resolve())
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for finding in pool.map(tidy.check, sorted(tidy.entries)):
            if finding:
                findings.append(finding)
    for finding in findings:
        print(finding)
    seconds = time.monotonic() - start
    verdict = f"{len(findings)} finding(s)" if findings else "clean"
    print(f"lint: {len(code)} files, clang-tidy over {len(tidy.entries)}: {verdict} in {seconds:.0f} s")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
