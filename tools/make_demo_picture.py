#!/usr/bin/env python3
"""Draws what `make demo` shows on a terminal: tools/make_demo_picture.py MOTLEY OUT.svg

Runs tools/demo.sh on a terminal of its own, follows its escape sequences, and writes what stands there at the end.
"""

import fcntl
import os
import pathlib
import pty
import re
import struct
import sys
import termios
from html import escape

COLUMNS, ROWS = 118, 60
ADVANCE, LINE, SIZE, MARGIN, BAR = 8.4, 18, 14, 20, 34
COLOURS = {31: "#ff7b72", 32: "#7ee787", 33: "#e3b341", 34: "#79c0ff", 35: "#d2a8ff", 36: "#56d4dd"}
TEXT, FAINT, BACKGROUND = "#e6edf3", "#7d8590", "#0d1117"

Cell = tuple[str, str, bool]  # character, colour, bold


def run(command: list[str]) -> str:
    process, terminal = pty.fork()
    if process == 0:
        os.execv(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    output = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # how a terminal's other side ends
            break
        output += piece
    _, status = os.waitpid(process, 0)
    if status != 0:
        sys.exit(output.decode())
    return output.decode()


def final_screen(output: str) -> list[list[Cell]]:
    lines: list[list[Cell]] = [[]]
    row, column, colour, bold = 0, 0, TEXT, False
    for sequence, letter, character in re.findall(r"\x1b\[([?0-9;]*)([A-Za-z])|(.)", output, flags=re.DOTALL):
        if character == "\n":
            row += 1
            if row == len(lines):
                lines.append([])
        elif character == "\r":
            column = 0
        elif character:
            lines[row][column:] = [*lines[row][column:column], (character, colour, bold), *lines[row][column + 1 :]]
            column += 1
        elif letter == "A":
            row -= int(sequence)
        elif letter == "K":
            del lines[row][column:]
        elif letter == "J":
            del lines[row][column:], lines[row + 1 :]
        elif letter == "m":
            for code in map(int, sequence.split(";")):
                if code == 0:
                    colour, bold = TEXT, False
                elif code == 1:
                    bold = True
                elif code == 2:
                    colour = FAINT
                else:
                    colour = COLOURS[code]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def spans(line: list[Cell]) -> list[tuple[int, str, str, bool]]:
    """Where each piece of one style begins, and the piece."""
    found: list[tuple[int, str, str, bool]] = []
    for column, (character, colour, bold) in enumerate(line):
        if found and found[-1][2:] == (colour, bold):
            found[-1] = (found[-1][0], found[-1][1] + character, colour, bold)
        else:
            found.append((column, character, colour, bold))
    return found


def draw(lines: list[list[Cell]]) -> str:
    width = COLUMNS * ADVANCE + 2 * MARGIN
    height = BAR + len(lines) * LINE + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}" '
        f'font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="{SIZE}">',
        f'<rect width="100%" height="100%" rx="10" fill="{BACKGROUND}"/>',
        *(f'<circle cx="{MARGIN + 6 + 20 * i}" cy="18" r="6" fill="#30363d"/>' for i in range(3)),
    ]
    for number, line in enumerate(lines):
        y = BAR + (number + 1) * LINE - 5
        for column, text, colour, bold in spans(line):
            begin = len(text) - len(text.lstrip(" "))
            shown = text.strip(" ")
            if not shown:
                continue
            # Fonts differ in width: each piece has its own.
            parts.append(
                f'<text x="{MARGIN + (column + begin) * ADVANCE:.1f}" y="{y}" fill="{colour}"'
                f'{" font-weight=" + chr(34) + "bold" + chr(34) if bold else ""} xml:space="preserve" '
                f'textLength="{len(shown) * ADVANCE:.1f}" lengthAdjust="spacingAndGlyphs">{escape(shown)}</text>'
            )
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    motley, out = (pathlib.Path(word) for word in sys.argv[1:3])
    lines = final_screen(run(["/bin/bash", "tools/demo.sh", str(motley)]))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(draw(lines))
    print(f"{out}: {len(lines)} lines")


if __name__ == "__main__":
    main()
