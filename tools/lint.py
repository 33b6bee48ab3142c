#!/usr/bin/env python3
"""Checks the format, the rules of the house, and clang-tidy: tools/lint.py [--jobs N] BUILD_FOLDER
With --rules-only only the rules, with --format it formats instead; neither needs a build.

clang-tidy is slow, so a file that passed is remembered under ~/.cache/motley/tidy by a hash of all that
its result depends on: its preprocessed text, its flags, the settings and the program's version.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
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
NOT_OURS = {".git", ".venv", ".scratch", ".cache", "build"}  # folders, as .gitignore has them
LONGEST_FILE = 700  # lines; the aim is 600
MADE_BY_A_TOOL = "// Made by tools/"  # the first line of a file that may be longer

# (what, where it is looked for, what to do): one line of a file that matches breaks a rule.
LINE_RULES = [
    (r'#include "([^"]*/)?\.\.?/', CODE, "include by room: \"base/error.h\""),
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


def listed_by_git(root: pathlib.Path) -> list[pathlib.Path] | None:
    """What git tracks, or would if it were added; None where the root is not that of a repository."""

    def git(*words: str) -> str | None:
        try:
            run = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
        except FileNotFoundError:
            return None
        return run.stdout if run.returncode == 0 else None

    top = git("rev-parse", "--show-toplevel")
    if top is None or pathlib.Path(top.rstrip("\n")).resolve() != root:
        return None
    listed = git("ls-files", "-co", "--exclude-standard", "-z")
    return None if listed is None else [root / name for name in listed.split("\0") if name]


def code_files(root: pathlib.Path) -> list[pathlib.Path]:
    files = listed_by_git(root)
    if files is None:
        files = []
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(set(folders) - NOT_OURS)
            files += [pathlib.Path(folder, name) for name in sorted(names)]
    return [path for path in files if path.suffix in CODE and path.is_file()]


def check_format(files: list[pathlib.Path]) -> list[str]:
    run = subprocess.run([FORMAT, "--dry-run", "-Werror", *map(str, files)], capture_output=True, text=True)
    wrong = sorted({line.split(":")[0] for line in run.stderr.splitlines() if "error:" in line})
    return [f"{pathlib.Path(name).relative_to(ROOT)}: not formatted: run make format" for name in wrong]


def check_rules(root: pathlib.Path, files: list[pathlib.Path]) -> list[str]:
    findings = []
    for path in files:
        name = str(path.relative_to(root))
        product = name.startswith(("src/", "fuzz/", "tests/"))
        lines = path.read_text().splitlines()
        made = bool(lines) and lines[0].startswith(MADE_BY_A_TOOL)
        if name.startswith("src/") and len(lines) > LONGEST_FILE and not made:
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
            if path.suffix != ".cc" or not path.is_relative_to(ROOT) or path.is_relative_to(build):
                continue
            if not NOT_OURS & set(path.relative_to(ROOT).parts):
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
    parser.add_argument("--rules-only", action="store_true")
    parser.add_argument("--format", action="store_true")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="another tree, for --rules-only")
    parser.add_argument("build", type=pathlib.Path, nargs="?")
    arguments = parser.parse_args()
    start = time.monotonic()

    root = arguments.root.resolve()
    code = code_files(root)
    if arguments.format:
        return subprocess.run([FORMAT, "-i", *map(str, code)]).returncode
    if arguments.rules_only:
        findings = check_rules(root, code)
        print(*findings, sep="\n", end="\n" if findings else "")
        return 1 if findings else 0
    if arguments.build is None or root != ROOT:
        parser.error("clang-tidy needs the build folder of this tree")
    findings = check_format(code) + check_rules(root, code)
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
