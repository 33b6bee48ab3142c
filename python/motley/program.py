"""The program `motley`: where it is, and the command of the package."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys

from .errors import StartError


def find_program(program: str | os.PathLike[str] | None = None) -> str:
    """The one that is named, else the package's, else the one on PATH."""
    if program is not None:
        return os.fspath(program)
    inside = pathlib.Path(__file__).resolve().parent / "bin" / "motley"
    if inside.is_file():
        return str(inside)
    found = shutil.which("motley")
    if found is None:
        raise StartError("no program motley: install the wheel, or name the program (program=...)")
    return found


def main() -> None:
    """The command `motley`: this process becomes the program."""
    try:
        program = find_program()
        os.execv(program, [program, *sys.argv[1:]])
    except (OSError, StartError) as error:
        raise SystemExit(f"motley: {error}") from error
