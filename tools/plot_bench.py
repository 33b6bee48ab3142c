#!/usr/bin/env python3
"""Draws what `motley bench MODEL --json` or `motley bench --url URL --json` printed, as one SVG.

    motley bench MODEL --concurrency 1,4,16,64 --json > ours.jsonl
    python3 tools/plot_bench.py ours.jsonl theirs.jsonl > loads.svg

Three panels over the load: tokens a second, milliseconds to the first token, milliseconds a token. A series is a file's
cases of one kind (closed or Poisson, adapters in memory); its median is a solid line, its 99th percentile a dashed one.
Needs nothing but Python.
"""

import json
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 340, 240
LEFT, TOP, GAP = 64, 40, 84
COLOURS = ("#1f6feb", "#d1570a", "#2a8f4a", "#8a3fc7", "#b3261e", "#5f6b7a")


@dataclass
class Series:
    name: str
    loads: list[float] = field(default_factory=list)
    lines: dict[str, list[float]] = field(default_factory=dict)

    def add(self, case: dict) -> None:
        self.loads.append(case.get("concurrency", case.get("requests_per_second_wanted")))
        values = {"tokens/s": case["tokens_per_second"]}
        for panel, key in (("first token, ms", "first_token_seconds"), ("token, ms", "token_seconds")):
            values[panel] = case[key]["p50"] * 1e3
            values[f"{panel} p99"] = case[key]["p99"] * 1e3
        for line, value in values.items():
            self.lines.setdefault(line, []).append(value)


def read(paths: list[Path]) -> list[Series]:
    series: dict[tuple, Series] = {}
    for path in paths:
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            case = json.loads(line)
            if "first_token_seconds" not in case:
                raise SystemExit(f"{path}:{number}: no load: use lines of motley bench MODEL --json or --url")
            name = [path.stem, case["arrivals"]]
            if case["adapters_in_memory"] is not None:
                name.append(f"{case['adapters_in_memory']} of {case['adapters']} adapters in memory")
            if case["adapters"] > 1:
                name.append(f"Zipf {case['zipf']:g}")
            series.setdefault(tuple(name), Series(", ".join(name))).add(case)
    if not series:
        raise SystemExit("no cases: the files are empty")
    return list(series.values())


def ticks(most: float) -> list[float]:
    """About four round numbers from zero on."""
    step = 10 ** math.floor(math.log10(max(most, 1e-9) / 4))
    for factor in (1, 2, 5, 10):
        if most / (step * factor) <= 5:
            step *= factor
            break
    return [step * i for i in range(math.floor(most / step + 1e-9) + 1)]


def panel(title: str, at: int, series: list[Series]) -> list[str]:
    max_load = max(load for each in series for load in each.loads)
    most = max((value for each in series for name in (title, f"{title} p99") for value in each.lines.get(name, [])), default=0)
    x = lambda load: at + WIDTH * load / max_load
    y = lambda value: TOP + HEIGHT * (1 - value / (most * 1.05 or 1))
    parts = [f'<text x="{at}" y="{TOP - 14}" font-weight="bold">{escape(title)}</text>']
    for value in ticks(most * 1.05):
        parts.append(f'<path d="M{at} {y(value):.1f}h{WIDTH}" stroke="#ddd"/>')
        parts.append(f'<text x="{at - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    for load in ticks(max_load):
        parts.append(f'<text x="{x(load):.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{load:g}</text>')
    parts.append(f'<text x="{at + WIDTH / 2}" y="{TOP + HEIGHT + 34}" text-anchor="middle">requests at once, or a second</text>')
    for index, each in enumerate(series):
        for name, dashes in ((title, ""), (f"{title} p99", ' stroke-dasharray="5 4"')):
            points = sorted(zip(each.loads, each.lines.get(name, []), strict=False))
            if not points:
                continue
            path = "L".join(f"{x(load):.1f} {y(value):.1f}" for load, value in points)
            colour = COLOURS[index % len(COLOURS)]
            parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
            parts += [f'<circle cx="{x(load):.1f}" cy="{y(value):.1f}" r="3" fill="{colour}"/>' for load, value in points]
    return parts


def draw(series: list[Series]) -> str:
    titles = ("tokens/s", "first token, ms", "token, ms")
    width = LEFT + len(titles) * (WIDTH + GAP)
    legend = TOP + HEIGHT + 60
    height = legend + 20 * len(series)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for index, title in enumerate(titles):
        parts += panel(title, LEFT + index * (WIDTH + GAP), series)
    for index, each in enumerate(series):
        line = legend + 20 * index
        parts.append(f'<path d="M{LEFT} {line - 4}h24" stroke="{COLOURS[index % len(COLOURS)]}" stroke-width="2"/>')
        parts.append(f'<text x="{LEFT + 32}" y="{line}">{escape(each.name)}</text>')
    return "\n".join([*parts, "</svg>"])


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        raise SystemExit(__doc__)
    print(draw(read([Path(argument) for argument in sys.argv[1:]])))
