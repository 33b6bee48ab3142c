#!/usr/bin/env python3
"""Checks the format, the rules of the architecture, and clang-tidy: tools/lint.py [--jobs N] BUILD_FOLDER
With --quick only format and rules, with --rules-only only the rules, with --format it formats instead; none of these
needs a build. BUILD_FOLDER is a configured build without unity files (preset tidy).

With --changed clang-tidy reads the files that differ from the tree that .ci/whole/tidy records, and those that include
them. A run over the whole tree that is clean writes the record anew.

clang-tidy is slow, mostly over the headers of libraries. So files of like flags are read together, as one
translation unit, and what passed is remembered under ~/.cache/motley/tidy by a hash of all that its result
depends on: its preprocessed text, its flags, the settings and the program's version.
"""

import argparse
import concurrent.futures
import dataclasses
import datetime
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

import changed
import together

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIDY = "clang-tidy-19"
FORMAT = "clang-format-19"
CODE = (".cc", ".h", ".cu", ".cuh")
NOT_OURS = {".git", ".venv", ".scratch", ".cache", "build"}  # folders, as .gitignore has them
MAX_TOGETHER = 16  # files that clang-tidy reads as one: more take its memory
# using a::name; or namespace name = ...; (clang-tidy asks of the main file alone whether they are used), but not the constructors that a class takes from its base.
BROUGHT_NAME = re.compile(r"^ *(?:using (?!(?P<class>\w+)::(?P=class);)[\w:]+::|namespace )(?P<name>\w+)(?:;| = )",
                          re.MULTILINE)
LONGEST_FILE = 700  # lines; the aim is 600
MADE_BY_A_TOOL = "// Made by tools/"  # the first line of a file that may be longer

# (what, how names of files end in which it is looked for, what to do): one line of a file that matches breaks a rule.
LINE_RULES = [
    (r'#include "([^"]*/)?\.\.?/', CODE, "include by module: \"base/error.h\""),
    (r'#include "[^/"]+"', CODE, "include by module: \"base/error.h\""),
    (r"#\s*if.*\b(CUDA|__CUDACC__|__CUDA_ARCH__)\b", CODE, "choose in CMake; only the number types may ask the compiler"),
    (r"#include <nlohmann/", CODE, "use base/json/json.h"),
    (r"\b(TODO|FIXME|XXX)\b", CODE, "do it, or write an issue"),
    (r"\bstd::(cout|cerr)\b", CODE, "write through base/log.h, or the command's output"),
    (r"\bgetenv\(", CODE, "settings come from the command line; what others set is read in src/cli/options/arguments/environment.cc"),
    (r"\bDISABLED_|GTEST_SKIP", (".cc",), "a test passes or is removed"),
    (r"\bsleep_(for|until)\(|\bstd::barrier\b", ("_test.cc",), "wait for an event, with a bound: base/test_waits.h"),
]
EXCEPTIONS = {
    "src/base/number_types.h": {"#\\s*if.*\\b(CUDA|__CUDACC__|__CUDA_ARCH__)\\b"},
    "src/base/json/json_parse.cc": {"#include <nlohmann/"},
    "src/cli/options/arguments/environment.cc": {"\\bgetenv\\("},
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
        for record in re.findall(r"\b20\d\d-\d\d-\d\d-[a-z-]+\.md", "\n".join(lines)):
            if name.startswith("src/") and not (root / "bench/results" / record).is_file():
                findings.append(f"{name}: cites {record}, which bench/results does not hold")
        if path.suffix in (".h", ".cuh") and "#pragma once" not in lines:
            findings.append(f"{name}: no #pragma once")
        if not product:
            continue
        for pattern, suffixes, advice in LINE_RULES:
            if not name.endswith(suffixes) or pattern in EXCEPTIONS.get(name, ()):
                continue
            for number, line in enumerate(lines, 1):
                if re.search(pattern, line):
                    findings.append(f"{name}:{number}: {line.strip()}: {advice}")
        if path.suffix in (".cc", ".cu"):
            findings += [f"{name}: using {brought}: is not used: remove it" for brought in unused_usings(lines)]
    return findings + check_slow_tests(root, files) + check_long_goldens(root)


def check_slow_tests(root: pathlib.Path, files: list[pathlib.Path]) -> list[str]:
    """A test that is left out by its name is there."""
    listed = root / "tests/slow_sanitized.txt"
    if not listed.is_file():
        return []
    tests = {f"{suite}.{name}" for path in files if path.name.endswith(".cc")
             for suite, name in re.findall(r"^TEST(?:_[FP])?\((\w+),\s*(\w+)\)", path.read_text(), re.MULTILINE)}
    names = [line for line in listed.read_text().splitlines() if line and not line.startswith("#")]
    return [f"tests/slow_sanitized.txt: {name}: no such test" for name in names if name not in tests]


def check_long_goldens(root: pathlib.Path) -> list[str]:
    """A golden that is left out by its name is there."""
    listed = root / "tests/long_goldens.txt"
    if not listed.is_file():
        return []
    patterns = [line for line in listed.read_text().splitlines() if line and not line.startswith("#")]
    return [f"tests/long_goldens.txt: {pattern}: no such golden" for pattern in patterns
            if not pattern.startswith("*/") or not (root / "tests/goldens" / pattern[2:]).is_dir()]


def unused_usings(lines: list[str]) -> list[str]:
    code = "\n".join(re.sub(r"(^|\s)//.*", "", line) for line in lines)
    return [brought["name"] for brought in BROUGHT_NAME.finditer(code)
            if not re.search(rf"\b{brought['name']}\b", code[brought.end() :])]


@dataclasses.dataclass
class Unit:
    """Files that are read as one, with the flags of all of them."""

    files: list[pathlib.Path]
    compiler: str
    directory: str
    flags: list[str]
    places: list[str]  # -I and -isystem: a module's files see no less with those of others
    macros: dict[str, str]  # by name, as the whole flag
    names: set[str]  # that a file declares for itself, so that two would stand in each other's way

    def text(self) -> str:
        # Each may have an entry point of its own.
        parts = []
        for number, path in enumerate(self.files):
            parts += [f"#define main main_{number}",
                      f"#define LLVMFuzzerTestOneInput LLVMFuzzerTestOneInput_{number}",
                      f'#include "{path}"  // NOLINT(bugprone-suspicious-include)',
                      "#undef main", "#undef LLVMFuzzerTestOneInput"]
        return "\n".join(parts) + "\n"

    def takes(self, other: "Unit") -> bool:
        return (self.flags == other.flags and len(self.files) + len(other.files) <= MAX_TOGETHER
                and not self.names & other.names
                and all(self.macros.get(name, flag) == flag for name, flag in other.macros.items()))

    def take(self, other: "Unit") -> None:
        self.files += other.files
        self.places += [place for place in other.places if place not in self.places]
        self.macros |= other.macros
        self.names |= other.names

    def words(self) -> list[str]:
        return self.flags + [word for place in self.places for word in place.split(" ", 1)] + [*self.macros.values()]


def unit_of(entry: dict) -> Unit:
    words = shlex.split(entry["command"])
    # After the launcher: the compiler and its flags.
    start = next(i for i, word in enumerate(words) if re.search(r"(c|g|clang)\+\+(-\d+)?$", word))
    unit = Unit([pathlib.Path(entry["file"])], words[start], entry["directory"], [], [], {}, set())
    unit.names = together.own_names(unit.files[0])
    words = iter(words[start + 1 :])
    for word in words:
        if word in ("-o", "-c", "-MF", "-MT", "-include"):
            next(words)
        elif word == "-isystem":
            unit.places.append(f"{word} {next(words)}")
        elif word.startswith("-I"):
            unit.places.append(word)
        elif word.startswith("-DLLVMFuzzerTestOneInput="):
            pass  # Unit.text() names it
        elif word.startswith("-D"):
            unit.macros[word.split("=")[0]] = word
        elif word not in ("-MD", "-Winvalid-pch", "-fpch-preprocess"):
            unit.flags.append(word)
    return unit


class Tidy:
    """clang-tidy over the .cc files of a compile database, with a cache of what passed."""

    def __init__(self, build: pathlib.Path, wanted: set[pathlib.Path] | None):
        """Of the files `wanted`, or of all."""
        self.cache = pathlib.Path.home() / ".cache" / "motley" / "tidy"
        self.cache.mkdir(parents=True, exist_ok=True)
        version = subprocess.run([TIDY, "--version"], capture_output=True, check=True, text=True).stdout
        self.common = version + (ROOT / ".clang-tidy").read_text()
        entries = {}
        for entry in json.loads((build / "compile_commands.json").read_text()):
            path = pathlib.Path(entry["file"])
            if path.suffix != ".cc" or not path.is_relative_to(ROOT) or path.is_relative_to(build):
                continue
            if not NOT_OURS & set(path.relative_to(ROOT).parts) and (wanted is None or path in wanted):
                entries.setdefault(path, entry)
        self.files = len(entries)
        self.units: list[Unit] = []
        for path in sorted(entries):
            unit = unit_of(entries[path])
            taker = next((each for each in self.units if each.takes(unit)), None)
            if taker is not None:
                taker.take(unit)
            else:
                self.units.append(unit)

    def check(self, unit: Unit) -> str:
        """What is wrong with its files; they are read one by one if they don't pass together."""
        with tempfile.NamedTemporaryFile("w", suffix=".cc") as together:
            together.write(unit.text())
            together.flush()
            passed = self.cache / self.key(unit, together.name)
            if passed.exists():
                return ""
            said = self.run(unit, together.name)
        if said and len(unit.files) > 1:
            alone = "".join(self.run(unit, str(path)) for path in unit.files)
            if not alone:
                print("lint: slow, as these don't pass together:", said, sep="\n")
            said = alone
        if not said:
            passed.touch()
        return said

    def key(self, unit: Unit, source: str) -> str:
        text = subprocess.run([unit.compiler, *unit.words(), "-E", "-P", source], cwd=unit.directory,
                              capture_output=True, check=True).stdout
        # Places differ between clones, and a comment may hold NOLINT: the sources themselves count too.
        root = str(ROOT).encode()
        sources = b"".join(path.read_bytes() for path in unit.files)
        material = self.common.encode() + " ".join(unit.words()).encode() + text + sources
        return hashlib.sha256(material.replace(root, b"")).hexdigest()

    def run(self, unit: Unit, source: str) -> str:
        # The flags are written for g++, and clang does not know all of its warnings. One file's names are not in the
        # shade of another's.
        ours = f"/architecture/|^{re.escape(str(ROOT))}/.*\\.cc$"
        run = subprocess.run([TIDY, "--quiet", f"--config-file={ROOT}/.clang-tidy", f"--header-filter={ours}", source,
                              "--", *unit.words(), "-Wno-unknown-warning-option", "-Wno-shadow"],
                             cwd=unit.directory, capture_output=True, text=True)
        return "" if run.returncode == 0 else run.stdout + run.stderr


# What changes how every file is read.
TIDY_ITSELF = {".clang-tidy", "cmake/MotleyCompiler.cmake"}


def wanted_files(code: list[pathlib.Path]) -> set[pathlib.Path] | None:
    """What --changed has clang-tidy read; None: all."""
    differs = changed.since_whole_run("tidy")
    if differs is None or {str(path.relative_to(ROOT)) for path in differs} & TIDY_ITSELF:
        return None
    return changed.Includes(code).compiled(differs, (".cc",), all_of_them=False)


def run_tidy(arguments: argparse.Namespace, code: list[pathlib.Path]) -> tuple[int, int]:
    """Prints what is wrong as it is found, for a whole run takes long; how many findings in how many files."""
    wanted = wanted_files(code) if arguments.changed else None
    tidy = Tidy(arguments.build.resolve(), wanted)
    found = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for done, finding in enumerate(pool.map(tidy.check, tidy.units), 1):
            found += bool(finding)
            print(finding or f"lint: clang-tidy has read {done} of {len(tidy.units)} units", flush=True)
    if wanted is None and found == 0:
        changed.RECORDS.mkdir(parents=True, exist_ok=True)
        record = changed.RECORDS / "tidy"
        record.write_text(f"{datetime.date.today()}: clang-tidy over the whole tree: clean\n")
    return found, tidy.files


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--rules-only", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--changed", action="store_true")
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
    if root != ROOT or arguments.build is None and not arguments.quick:
        parser.error("clang-tidy needs a build folder of this tree")
    findings = check_format(code) + check_rules(root, code)
    for finding in findings:
        print(finding)
    found, tidied = len(findings), 0
    if not arguments.quick:
        more, tidied = run_tidy(arguments, code)
        found += more
    seconds = time.monotonic() - start
    verdict = f"{found} finding(s)" if found else "clean"
    print(f"lint: {len(code)} files, clang-tidy over {tidied}: {verdict} in {seconds:.0f} s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
