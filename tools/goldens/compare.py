"""Compares two golden sets: weights and adapters byte for byte, numbers within a tolerance.

Versions of libraries are not compared: a set keeps those that it was made with.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TOLERANCE = 1e-6

# Files that hold computed numbers or versions; every other file must be the same byte for byte.
PARSED = (".jsonl", "golden.json", "config.json")
VERSIONS = ("versions", "transformers_version")


def _files(folder: Path) -> set[Path]:
    return {p.relative_to(folder) for p in folder.rglob("*") if p.is_file()}


def differences(expected: Path, made: Path) -> Iterator[str]:
    """One line for every way in which the two model folders differ."""
    expected_files, made_files = _files(expected), _files(made)
    for name in sorted(expected_files ^ made_files):
        yield f"{name}: only in the {'stored' if name in expected_files else 'new'} set"
    for name in sorted(expected_files & made_files):
        old, new = (expected / name).read_bytes(), (made / name).read_bytes()
        if old == new:
            continue
        if not name.name.endswith(PARSED):
            yield f"{name}: bytes differ"
            continue
        for where in _json_differences(_parse(old), _parse(new), ""):
            yield f"{name}: {where}"


def _parse(data: bytes) -> list[Any]:
    """A JSON document, or one per line."""
    text = data.decode()
    try:
        documents = [json.loads(text)]
    except json.JSONDecodeError:
        documents = [json.loads(line) for line in text.splitlines()]
    return [{key: value for key, value in each.items() if key not in VERSIONS} for each in documents]


def _json_differences(old: Any, new: Any, where: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        for key in old:
            yield from _json_differences(old[key], new[key], f"{where}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (a, b) in enumerate(zip(old, new, strict=True)):
            yield from _json_differences(a, b, f"{where}[{i}]")
    elif isinstance(old, float) and isinstance(new, float):
        if abs(old - new) > TOLERANCE:
            yield f"{where}: {old} and {new}"
    elif old != new:
        yield f"{where}: {old!r} and {new!r}"
