"""What has changed since the whole tree last passed a check, and which files include it.

A whole run leaves a record in .ci/whole/, which is committed with what it found clean. The last commit that touched
the record is what later changes are compared with: that holds in every clone that has the history.
"""

import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORDS = ROOT / ".ci" / "whole"
INCLUDE = re.compile(r'^\s*#\s*include "([^"]+)"', re.MULTILINE)


def git(*words: str) -> str | None:
    run = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return run.stdout if run.returncode == 0 else None


def since_whole_run(record: str) -> set[pathlib.Path] | None:
    """The files that differ from those that passed; None where the history doesn't tell."""
    if (git("rev-parse", "--is-shallow-repository") or "true").strip() != "false":
        return None
    commit = (git("log", "-1", "--format=%H", "--", f".ci/whole/{record}") or "").strip()
    if not commit:
        return None
    changed = git("diff", "--name-only", "-z", commit)
    added = git("ls-files", "--others", "--exclude-standard", "-z")
    if changed is None or added is None:
        return None
    return {ROOT / name for name in (changed + added).split("\0") if name and (ROOT / name).is_file()}


class Includes:
    """Who includes whom, by the names that #include lines give."""

    def __init__(self, files: list[pathlib.Path]):
        names = {}
        for path in files:
            parts = path.relative_to(ROOT).parts
            # src/base/error.h is "base/error.h", tests/support/allocations.h is "support/allocations.h" or the whole.
            names["/".join(parts)] = path
            names["/".join(parts[1:])] = path
        self.includers: dict[pathlib.Path, set[pathlib.Path]] = {}
        for path in files:
            for name in INCLUDE.findall(path.read_text()):
                if name in names:
                    self.includers.setdefault(names[name], set()).add(path)

    def compiled(self, changed: set[pathlib.Path], suffixes: tuple[str, ...], *, all_of_them: bool) -> set[pathlib.Path]:
        """The changed files of those suffixes, and of each changed header the files that include it: directly, or
        the nearest where none does, or through any number of headers."""
        found = {path for path in changed if path.suffix in suffixes}
        for header in changed - found:
            found |= self.of(header, suffixes, all_of_them)
        return found

    def of(self, header: pathlib.Path, suffixes: tuple[str, ...], all_of_them: bool) -> set[pathlib.Path]:
        found: set[pathlib.Path] = set()
        seen = {header}
        level = {header}
        while level and (all_of_them or not found):
            level = set().union(*(self.includers.get(path, set()) for path in level)) - seen
            seen |= level
            found |= {path for path in level if path.suffix in suffixes}
        return found
