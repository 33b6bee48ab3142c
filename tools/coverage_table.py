#!/usr/bin/env python3
"""Covered lines by module and the least covered files: tools/coverage_table.py SUMMARY, as llvm-cov export writes it."""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHOWN = 20
FEW_LINES = 20  # smaller files are not listed


def main() -> int:
    modules: dict[str, list[int]] = {}
    files = []
    for entry in json.loads(pathlib.Path(sys.argv[1]).read_text())["data"][0]["files"]:
        path = pathlib.Path(entry["filename"])
        if not path.is_relative_to(ROOT / "src"):
            continue
        name = path.relative_to(ROOT / "src")
        lines = entry["summary"]["lines"]
        for row in (modules.setdefault(name.parts[0], [0, 0]), modules.setdefault("all", [0, 0])):
            row[0] += lines["covered"]
            row[1] += lines["count"]
        if lines["count"] >= FEW_LINES:
            files.append((lines["percent"], lines["count"], name))
    print(f"{'module':<10} {'lines':>7} {'covered':>8}")
    for name, (covered, count) in modules.items():
        print(f"{name:<10} {count:>7} {100 * covered / count:>7.1f}%")
    print("\nleast covered files")
    for percent, count, name in sorted(files)[:SHOWN]:
        print(f"{percent:>6.1f}% of {count:>4} lines  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
