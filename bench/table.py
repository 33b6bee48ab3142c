#!/usr/bin/env python3
"""Times of a GPU's steps over many formats, batches and adapters, next to those stored for the same kind of card.

    python3 bench/table.py MOTLEY                                      # against bench/tables/CARD.json
    python3 bench/table.py MOTLEY --twice --commit NAME --output FILE  # makes such a file

Each line is a case of `motley bench --shape`. A line that differs from the stored one by more than 2 % is measured
once more before it counts. Status 1: a line became slower, or is missing.
"""

import argparse
import collections
import dataclasses
import datetime
import json
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any, Iterable, NamedTuple

STORED = pathlib.Path(__file__).resolve().parent / "tables"
VERSION = 1
LIMIT = 0.02        # a smaller change is none
LONGEST = 200       # seconds of one command
STEPS = 20          # of each of the three rounds of a case


class Case(NamedTuple):
    """Of a group: "8" decodes with 8 sequences, "8x1024" reads 8 prompts of 1024 tokens."""

    size: str
    adapters: int

    def __str__(self) -> str:
        phase = "prompts" if "x" in self.size else "decode"
        adapters = {0: "", 1: ", 1 adapter"}.get(self.adapters, f", {self.adapters} adapters")
        return f"{phase} {self.size}{adapters}"


@dataclasses.dataclass(frozen=True)
class Group:
    """Cases of one model, which is loaded once."""

    name: str
    options: str  # of `motley bench`
    batches: tuple[int, ...] = ()
    prompts: tuple[str, ...] = ()
    adapters: tuple[int, ...] = (0,)
    against: str = ""  # the group that this one's times are shown as multiples of

    def line(self, case: Case) -> str:
        return f"{self.name}: {case}"

    def command(self, motley: str) -> list[str]:
        def listed(items: Iterable[object]) -> str:
            return ",".join(map(str, items)) or "none"

        return [motley, "bench", "--json", "--device", "cuda", "--steps", str(STEPS), *self.options.split(),
                "--batch", listed(self.batches), "--prefill", listed(self.prompts), "--adapters", listed(self.adapters)]

    def only(self, cases: Iterable[Case]) -> "Group":
        """These cases again. The largest batch and number of adapters stay, since they decide how memory is laid out."""
        sizes = {case.size for case in cases}
        numbers = {case.adapters for case in cases} | {0, max(self.adapters)}
        decodes = any("x" not in size for size in sizes)
        return dataclasses.replace(
            self,
            batches=tuple(b for b in self.batches if str(b) in sizes or (decodes and b == max(self.batches))),
            prompts=tuple(p for p in self.prompts if p in sizes),
            adapters=tuple(n for n in self.adapters if n in numbers))

    def smaller(self, error: str) -> "Group | None":
        """What may fit where the card had no memory for this; None: nothing."""
        if " adapters take " in error and len(self.adapters) > 1:
            return dataclasses.replace(self, adapters=self.adapters[:-1])
        if " sequences take " in error and len(self.batches) > 1:
            return dataclasses.replace(self, batches=self.batches[:-1])
        return None


QWEN = "--shape qwen3-30b-a3b"
CUT = f"{QWEN} --layers 16"
PROMPTS = ("8x1024",)
BF16 = Group("bf16, 16 layers", CUT, (1, 8, 32, 64), PROMPTS, (0, 1, 4))
INT4 = Group("int4, 16 layers", f"{CUT} --format w4a16", (1, 8, 64), PROMPTS)
GROUPS = (
    Group("bf16, 48 layers", QWEN, (1, 2, 4, 8, 9, 17, 24, 32, 64, 128), adapters=(0, 1, 4, 32)),
    Group("int4, 48 layers", f"{QWEN} --format w4a16", (1, 8, 17, 32, 64), adapters=(0, 1, 4)),
    BF16,
    Group("bf16, 16 layers, batch-invariant", f"{CUT} --batch-invariant", (1, 8, 32, 64), PROMPTS, against=BF16.name),
    Group("bf16, 16 layers, rank 64", f"{CUT} --ranks 64", (), PROMPTS, (0, 4)),
    INT4,
    Group("int4, 16 layers, FP8 adapters", f"{CUT} --format w4a16 --adapter-dtype fp8", (64,), adapters=(0, 64)),
    Group("FP8 block, 16 layers", f"{CUT} --format fp8-block", (1, 8, 32, 64), PROMPTS, (0, 4)),
    Group("W8A8, 16 layers", f"{CUT} --format w8a8", (1, 8, 64), PROMPTS, (0, 4)),
    Group("NVFP4, 16 layers", f"{CUT} --format nvfp4", (1, 8, 64), PROMPTS, (0, 4)),
    Group("gpt-oss-20b, MXFP4", "--shape gpt-oss-20b --format mxfp4", (1, 8, 64)),
    Group("deepseek-v2-lite, bf16", "--shape deepseek-v2-lite", (1, 8, 64)),
    Group("bf16, 16 layers, 32768 tokens", f"{CUT} --context 32768", (1, 8, 32)),
    Group("bf16, 16 layers, 32768 tokens, FP8 cache", f"{CUT} --context 32768 --kv-dtype fp8", (1, 8, 32),
          against="bf16, 16 layers, 32768 tokens"),
)


@dataclasses.dataclass
class Line:
    """The measurements of one case."""

    ms: list[float] = dataclasses.field(default_factory=list)
    over: float = 0  # the best time over the card's floor

    def add(self, ms: float, over: float) -> None:
        if not self.ms or ms < min(self.ms):
            self.over = over
        self.ms.append(ms)

    @property
    def best(self) -> float:
        return min(self.ms)


Lines = dict[str, Line]


def scatter(ms: list[float]) -> float:
    """The largest of repeated measurements over the smallest, less 1."""
    return max(ms) / min(ms) - 1


class Verdict(NamedTuple):
    change: float  # of the best time, as a part of the stored one
    mark: str      # "", "SLOWER", "faster" or "noisy"

    @property
    def repeat(self) -> bool:
        return abs(self.change) > LIMIT


def judge(now: list[float], stored: list[float]) -> Verdict:
    """Repeats that scatter by more than the limit make a line noisy, unless it moved by more than twice their scatter."""
    change = min(now) / min(stored) - 1
    noise = max(scatter(now), scatter(stored))
    if abs(change) > (LIMIT if noise <= LIMIT else 2 * noise):
        return Verdict(change, "SLOWER" if change > 0 else "faster")
    return Verdict(change, "noisy" if noise > LIMIT else "")


def compare(now: Lines, stored: Lines) -> dict[str, Verdict]:
    return {name: judge(now[name].ms, stored[name].ms) for name in now if name in stored}


def base_of(group: Group, case: Case) -> str:
    """The line that a line is shown as a part of; "": none."""
    if case.adapters:
        return group.line(Case(case.size, 0))
    return f"{group.against}: {case}" if group.against else ""


def cases_of(group: Group) -> list[Case]:
    return [Case(size, adapters) for size in [*map(str, group.batches), *group.prompts] for adapters in group.adapters
            if adapters <= int(size.split("x")[0])]


def shown(lines: Lines, stored: Lines, groups: Iterable[Group] = GROUPS) -> list[str]:
    """The table as text."""
    verdicts = compare(lines, stored)
    rows = [f"{'':42}{'ms':>9}{'over':>7}  {'':12}" + (f"{'stored':>9}{'change':>9}" if stored else "")]
    for group in groups:
        rows.append(group.name)
        for case in cases_of(group):
            name, base = group.line(case), base_of(group, case)
            if name not in lines:
                rows.append(f"  {str(case):40}{'-':>9}" + ("  MISSING" if name in stored else ""))
                continue
            line, share = lines[name], ""
            if base in lines:
                ratio = lines[base].best / line.best
                share = f"{100 * ratio:.0f} % kept" if case.adapters else f"{1 / ratio:.2f} times"
            row = f"  {str(case):40}{line.best:9.3f}{line.over:7.2f}  {share:12}"
            if name in verdicts:
                row += f"{stored[name].best:9.3f}{100 * verdicts[name].change:+7.1f} %  {verdicts[name].mark}"
            elif scatter(line.ms) > LIMIT:
                row += f"  noisy: {100 * scatter(line.ms):.1f} %"
            rows.append(row.rstrip())
    return rows


def floors_moved(lines: Lines, stored: Lines) -> float:
    """By what part the card's floors differ from the stored ones: how much faster or slower this very card is."""
    return statistics.median(line.best / line.over / (stored[name].best / stored[name].over) - 1
                             for name, line in lines.items() if name in stored)


def failures(lines: Lines, stored: Lines) -> list[str]:
    """What makes the run fail."""
    slower = [name for name, verdict in compare(lines, stored).items() if verdict.mark == "SLOWER"]
    return slower + [name for name in stored if name not in lines]


def measure(group: Group, motley: str, lines: Lines) -> str:
    """Adds the group's measurements to `lines`. Returns what `motley` complained of."""
    try:
        done = subprocess.run(group.command(motley), capture_output=True, text=True, timeout=LONGEST)
        output, error = done.stdout, done.stderr if done.returncode else ""
    except subprocess.TimeoutExpired as late:
        output = late.stdout.decode() if late.stdout else ""
        error = f"it did not end in {LONGEST} s"
    except OSError as reason:
        sys.exit(f"{motley}: {reason.strerror}")
    found = 0
    for text in output.splitlines():
        if not text.endswith("}"):
            continue  # the last one of a command that was ended
        row, found = json.loads(text), found + 1
        size = str(row["sequences"]) if row["phase"] == "decode" else f"{row['sequences']}x{row['tokens']}"
        lines.setdefault(group.line(Case(size, row["adapters"])), Line()).add(
            1e3 * row["step_seconds"], row["over_floor"])
    smaller = group.smaller(error) if found == 0 else None
    if smaller is not None:
        return measure(smaller, motley, lines)
    return " ".join(error.split())


def graphics_card() -> tuple[str, str]:
    """Its name and the driver's version."""
    words = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        name, driver = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()[0].split(", ")
    except (OSError, subprocess.CalledProcessError, IndexError, ValueError) as reason:
        sys.exit(f"no GPU: {' '.join(words)}: {reason}")
    return name, driver


def stored_for(card: str) -> pathlib.Path:
    return STORED / (card.removeprefix("NVIDIA ").lower().replace(" ", "-") + ".json")


def as_json(facts: dict[str, Any], lines: Lines) -> str:
    """A line of text for each line of the table, so that versions can be compared."""
    head = "".join(f'  {json.dumps(key)}: {json.dumps(value)},\n' for key, value in facts.items())
    body = ",\n".join(f'    {json.dumps(name)}: ' + json.dumps({"ms": [round(ms, 4) for ms in line.ms], "over": round(line.over, 3)})
                      for name, line in lines.items())
    return f'{{\n  "motley_table": {VERSION},\n{head}  "lines": {{\n{body}\n  }}\n}}\n'


def read(path: pathlib.Path) -> tuple[dict[str, Any], Lines]:
    try:
        table = json.loads(path.read_text())
        if table.pop("motley_table") != VERSION:
            raise ValueError("another version")
        return table, {name: Line(line["ms"], line["over"]) for name, line in table.pop("lines").items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as reason:
        sys.exit(f"{path}: no table: {reason}: make one with --output")


class Run:
    """Measures groups until the time is over."""

    def __init__(self, motley: str, seconds: float):
        self.lines: Lines = {}
        self._motley = motley
        self._start = time.monotonic()
        self._seconds = seconds
        self._took: dict[str, float] = collections.defaultdict(float)  # by the name of a group

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._start

    def measure(self, group: Group) -> None:
        if self.elapsed + self._took[group.name] > self._seconds:
            print(f"{group.name}: no time is left", file=sys.stderr)
            return
        start = time.monotonic()
        error = measure(group, self._motley, self.lines)
        self._took[group.name] = time.monotonic() - start
        print(f"{group.name}: {self._took[group.name]:.0f} s{'; ' if error else ''}{error}", file=sys.stderr)

    def repeat(self, names: set[str]) -> None:
        for group in GROUPS:
            cases = [case for case in cases_of(group) if group.line(case) in names]
            if cases:
                self.measure(group.only(cases))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("motley", help="the program, with CUDA")
    parser.add_argument("--compare", type=pathlib.Path, metavar="FILE", help="a table (bench/tables/CARD.json, if there is one)")
    parser.add_argument("--output", type=pathlib.Path, metavar="FILE", help="where the table goes")
    parser.add_argument("--commit", default="", metavar="NAME", help="written into the table")
    parser.add_argument("--twice", action="store_true", help="measures every line twice, so that the table knows its scatter")
    parser.add_argument("--seconds", type=float, default=450, help="nothing begins after these (450)")
    options = parser.parse_args()

    card, driver = graphics_card()
    before: dict[str, Any] = {}
    stored: Lines = {}
    path = options.compare or stored_for(card)
    if options.compare or path.is_file():
        before, stored = read(path)
        if before["card"] != card:
            sys.exit(f"{path}: measured on {before['card']}, and this is {card}")

    run = Run(options.motley, options.seconds)
    for group in GROUPS:
        run.measure(group)
    run.repeat(set(run.lines) if options.twice else
               {name for name, verdict in compare(run.lines, stored).items() if verdict.repeat})

    facts = {"card": card, "driver": driver, "commit": options.commit,
             "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), "seconds": round(run.elapsed)}
    print(f"{card}, driver {driver}, {facts['date']} {options.commit}".rstrip())
    if stored:
        print(f"stored: {path}, driver {before['driver']}, {before['date']} {before['commit']}".rstrip())
    if stored.keys() & run.lines.keys():
        print(f"floors of this card against those of the stored one: {100 * floors_moved(run.lines, stored):+.1f} %")
    print("\n".join(shown(run.lines, stored)))
    if options.output:
        options.output.write_text(as_json(facts, run.lines))
    failed = failures(run.lines, stored)
    marks = collections.Counter(verdict.mark for verdict in compare(run.lines, stored).values())
    missing = sum(name not in run.lines for name in failed)
    print(f"{len(run.lines)} lines in {run.elapsed:.0f} s" +
          (f": {marks['SLOWER']} slower, {marks['faster']} faster, {marks['noisy']} noisy, {missing} missing" if stored else ""))
    return 1 if failed or not run.lines else 0


if __name__ == "__main__":
    sys.exit(main())
