#!/usr/bin/env python3
"""Makes src/text/jinja/values/characters_tables.cc: what Python's str methods know of each character.

    python3 tools/make_character_tables.py > src/text/jinja/values/characters_tables.cc

Run it with the Python that the template goldens are made with, because its Unicode version decides what
`repr`, `upper` and `isalpha` give for newly assigned characters.
"""

import itertools
import sys
import unicodedata

from number_table import NumberTable

FLAGS = ["alpha", "decimal", "digit", "numeric", "printable", "lower", "upper", "title", "space", "ignorable"]
SURROGATES = range(0xD800, 0xE000)


def _is_ignorable(char: str) -> bool:
    """Whether a final sigma looks past the character: seen from what lower() does around it."""
    return ("AΣ" + char).lower()[1] == "ς" and ("AΣ" + char + "A").lower()[1] == "σ"


def _flags(char: str) -> int:
    flags = {
        "alpha": char.isalpha(),
        "decimal": char.isdecimal(),
        "digit": char.isdigit(),
        "numeric": char.isnumeric(),
        "printable": char.isprintable(),
        "lower": char.islower(),
        "upper": char.isupper(),
        "title": char.istitle() and not char.isupper(),
        "space": char.isspace(),
        "ignorable": _is_ignorable(char),
    }
    return sum(1 << bit for bit, name in enumerate(FLAGS) if flags[name])


def _properties() -> NumberTable:
    """Runs from U+0000 on: length, flags."""
    table = NumberTable()
    flags = (0 if point in SURROGATES else _flags(chr(point)) for point in range(sys.maxunicode + 1))
    for value, run in itertools.groupby(flags):
        table.number(sum(1 for _ in run))
        table.number(value)
    return table


def _case(mapping, usual=lambda char: char) -> NumberTable:
    """The characters that a mapping treats unlike the usual one, as in the table of lower case."""
    changed = [chr(point) for point in range(sys.maxunicode + 1) if point not in SURROGATES]
    changed = [char for char in changed if mapping(char) != usual(char)]
    table = NumberTable()
    table.number(len(changed))
    after = 0
    for char in changed:
        table.number(ord(char) - after)
        after = ord(char)
        table.number(len(mapping(char)))
        for mapped in mapping(char):
            table.signed(ord(mapped) - ord(char))
    return table


def main() -> None:
    version = sys.version.split()[0].rsplit(".", 1)[0]
    tables = {
        "properties": _properties(),
        "lower_case": _case(str.lower),
        "upper_case": _case(str.upper),
        "title_case": _case(str.title, str.upper),
    }
    print(f"// Made by tools/make_character_tables.py with Python {version}, Unicode {unicodedata.unidata_version}.")
    print('\n#include "text/jinja/values/characters_tables.h"\n')
    print("namespace motley::text::jinja::tables {\n\n// clang-format off")
    print("\n".join(table.definition(name) for name, table in tables.items()), end="")
    print("// clang-format on\n\n}  // namespace motley::text::jinja::tables")


if __name__ == "__main__":
    main()
