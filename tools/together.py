"""Which source files can be read as one translation unit.

clang-tidy and unity builds spend most of their time in headers, so they read several files together. Two files that
declare the same name for themselves (both have a `struct Settings` in their unnamed namespace) can't be; nor can one that
declares a function and one that calls another function of that name, nor one that brings an enum's names into its scope.

    together.py MAX FILE...    # the group of each file, one number a line, in the order given; at most MAX a group
"""

import pathlib
import re
import sys

# What a line that begins with it declares, and not in a class's name.
OWN_NAME = re.compile(r"^(?=\w)(?!template|TEST|INSTANTIATE|namespace|using namespace|extern)"
                      r"[\w:<>,*&\[\] ]*?(?<!::)\b(\w+) ?(?:[(={;\[]|:(?!:))", re.MULTILINE)


BRINGS_NAMES = re.compile(r"^using enum ", re.MULTILINE)
# A call by a bare name.
CALL = re.compile(r"(?<![\w.:>])(\w+)\(")


def own_names(path: pathlib.Path) -> set[str]:
    return set(OWN_NAME.findall(path.read_text().replace(" final ", " ")))


def called_names(path: pathlib.Path) -> set[str]:
    return set(CALL.findall(path.read_text()))


class Group:
    def __init__(self) -> None:
        self.files = 0
        self.own: set[str] = set()
        self.called: set[str] = set()

    def takes(self, own: set[str], called: set[str]) -> bool:
        return not self.own & own and not self.own & called and not self.called & own

    def add(self, own: set[str], called: set[str]) -> None:
        self.files += 1
        self.own |= own
        self.called |= called


def groups(paths: list[pathlib.Path], most: int) -> list[int]:
    """First fit: the number of each file's group."""
    filled: list[Group] = []
    chosen = []
    for path in paths:
        own, called = own_names(path), called_names(path)
        fits = (i for i, group in enumerate(filled) if group.files < most and group.takes(own, called))
        number = len(filled) if BRINGS_NAMES.search(path.read_text()) else next(fits, len(filled))
        if number == len(filled):
            filled.append(Group())
        filled[number].add(own, called)
        if BRINGS_NAMES.search(path.read_text()):
            filled[number].files = most
        chosen.append(number)
    return chosen


if __name__ == "__main__":
    print(*groups([pathlib.Path(name) for name in sys.argv[2:]], int(sys.argv[1])), sep="\n")
