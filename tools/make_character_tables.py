#!/usr/bin/env python3
"""Makes src/text/jinja/characters_tables.cc: what Python's str methods know of each character.

    python3 tools/make_character_tables.py > src/text/jinja/characters_tables.cc

Run it with the Python that the template goldens are made with, because its Unicode version decides what
`repr`, `upper` and `isalpha` give for newly assigned characters.
"""

import sys
import unicodedata

FLAGS = ["alpha", "decimal", "digit", "numeric", "printable", "lower", "upper", "title", "space", "ignorable"]
SURROGATES = range(0xD800, 0xE000)
PER_LINE = 8


def _is_ignorable(char: str) -> bool:
    """Whether a final sigma looks past the character: seen from what lower() does around it."""
    return ("AΣ" + char).lower()[1] == "ς" and ("AΣ" + char + "A").lower()[1] == "σ"


def _flags(char: str) -> int:
    said = {
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
    return sum(1 << bit for bit, name in enumerate(FLAGS) if said[name])


def _runs() -> list[tuple[int, int]]:
    runs = [(0, _flags("\0"))]
    for point in range(1, sys.maxunicode + 1):
        flags = 0 if point in SURROGATES else _flags(chr(point))
        if flags != runs[-1][1]:
            runs.append((point, flags))
    return runs


def _case(mapping) -> tuple[list[tuple[int, int, int, int]], list[tuple[int, str]]]:
    """Ranges (first, last, step, delta) of single characters, and the characters that become several."""
    single, several = [], []
    for point in range(sys.maxunicode + 1):
        if point in SURROGATES:
            continue
        mapped = mapping(chr(point))
        if mapped == chr(point):
            continue
        if len(mapped) > 1:
            several.append((point, mapped))
            continue
        delta = ord(mapped) - point
        if single:
            first, last, step, of = single[-1]
            gap = point - last
            if of == delta and gap in (1, 2) and (first == last or gap == step):
                single[-1] = (first, point, gap, of)
                continue
        single.append((point, point, 1, delta))
    return single, several


def _lines(items: list[str]) -> str:
    rows = [items[at : at + PER_LINE] for at in range(0, len(items), PER_LINE)]
    return "\n".join("    " + ", ".join(row) + "," for row in rows)


def _print_case(name: str, mapping) -> None:
    single, several = _case(mapping)
    ranges = [f"{{0x{first:X}, 0x{last:X}, {step}, {delta}}}" for first, last, step, delta in single]
    print(f"\nconst CaseRange {name}_ranges[] = {{\n{_lines(ranges)}\n}};")
    print(f"const std::size_t {name}_range_count = std::size({name}_ranges);")
    if several:
        padded = [(point, [ord(c) for c in text] + [0] * (3 - len(text))) for point, text in several]
        items = [f"{{0x{point:X}, {{0x{a:X}, 0x{b:X}, 0x{c:X}}}}}" for point, (a, b, c) in padded]
        print(f"\nconst CaseExpansion {name}_expansions[] = {{\n{_lines(items)}\n}};")
        print(f"const std::size_t {name}_expansion_count = std::size({name}_expansions);")


def main() -> None:
    version = sys.version.split()[0].rsplit(".", 1)[0]
    print(f"// Made by tools/make_character_tables.py with Python {version}, Unicode {unicodedata.unidata_version}.")
    print('\n#include "text/jinja/characters_tables.h"\n\n#include <iterator>\n')
    print("namespace motley::text::jinja {\n\n// clang-format off")
    runs = [f"0x{point << len(FLAGS) | flags:X}" for point, flags in _runs()]
    print(f"const std::uint32_t character_runs[] = {{\n{_lines(runs)}\n}};")
    print("const std::size_t character_run_count = std::size(character_runs);")
    _print_case("lower", str.lower)
    _print_case("upper", str.upper)
    _print_case("title", str.title)
    print("// clang-format on\n\n}  // namespace motley::text::jinja")


if __name__ == "__main__":
    main()
