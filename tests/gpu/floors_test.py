#!/usr/bin/env python3
"""Decoding keeps to its distance from the card's floor: no slower than 1.25 times what bench/tables/ holds for this kind
of card. Status 77: it holds nothing.

    floors_test.py MOTLEY

Only ratios of two times of one run count, never a time: the floor is what the step's bytes and operations would take at
the speeds that `motley bench` measures first.
"""

import dataclasses
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import table  # noqa: E402

SLACK = 1.25
TRIES = 3
SKIPPED = 77
GROUPS = (dataclasses.replace(table.BF16, batches=(1, 8, 64), prompts=(), adapters=(0,)),
          dataclasses.replace(table.INT4, batches=(1, 64), prompts=(), adapters=(0,)))


def main() -> int:
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    motley = sys.argv[1]
    path = table.stored_for(table.graphics_card()[0])
    if not path.is_file():
        print(f"{path.relative_to(ROOT)} is not there: python3 bench/table.py {motley} --twice --output {path} makes it")
        return SKIPPED
    _, stored = table.read(path)
    lines: table.Lines = {}
    far: list[str] = []
    for group in GROUPS:
        for _ in range(TRIES):
            error = table.measure(group, motley, lines)
            names = [group.line(case) for case in table.cases_of(group)]
            if any(name not in lines for name in names):
                sys.exit(f"{group.name}: not measured: {error}")
            slow = [name for name in names if lines[name].over > SLACK * stored[name].over]
            if not slow:
                break
        for name in names:
            print(f"{name}: {lines[name].over:.2f} times its floor, stored {stored[name].over:.2f}")
        far += slow
    if far:
        sys.exit(f"slower than {SLACK} times the stored ratio in each of {TRIES} tries: {'; '.join(far)}\n"
                 f"Look closer with: python3 {ROOT / 'bench/table.py'} {motley}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
