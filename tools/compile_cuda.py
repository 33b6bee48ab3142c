#!/usr/bin/env python3
"""Compiles one CUDA file as CMake's launcher, and refuses what the compile budget rules out.

    compile_cuda.py COMMAND...     # runs the compiler; its record lies beside the object
    compile_cuda.py --table FOLDER # prints the records of all objects under a folder, those of a whole build

Refused: notes of ptxas that it runs wgmma one by one or drops register counts (C75xx), spills in a
kernel that must not have any, more than 48 kernels or 4 GB of memory for one file. A whole build
is refused if a rule about spills names no kernel of it. Processor time is no reason to refuse, since it
depends on the machine and its load: the table marks files of more than 60 s.
"""

import json
import pathlib
import re
import resource
import subprocess
import sys

MANY_SECONDS = 60
MAX_KERNELS = 48
MAX_BYTES = 4 << 30
SUFFIX = ".compile.json"

# Kernels that must not spill, by their short names (short_name below). Not on the list, for they do
# spill: the grouped kernel of 4 blocks a multiprocessor, and those of 64 and 128 rows with adapters.
NO_SPILLS = [
    r"grouped_kernel<TileShape<.*, false, \w+>, (8, 3|16, 2|160, 1)>",
    r"grouped_kernel<.*, 128, 1>",
    *("combine", "count_pairs", "count_pieces", "scatter_pairs", "write_pieces", "sort_by_label"),
    *("multiply", "multiply_bulk<.*>", "shrink", "shrink_all<.*>", "expand"),
    *("activate", "route_rows", "norm_and_route_rows", "recur_prompt<.*>"),
    r"attend_few<FewShape<(128, 128|192, 128|256, 256), (8|16)> >",
    r"attend_tiles<Shape<(64, 64|128, 128|192, 128), false> >",
]

# Kernels that rules above name and that spill, with the most bytes: two scales and zero points a row
# leave no registers for the last of a thread's addresses, which are loaded again once a tile; of 512
# threads that keep states, some are loaded again once a page.
MAY_SPILL = {
    "recur_prompt<Prompt<4> >": 24,
    "grouped_kernel<TileShape<CodedWeights<ExpertFormat3>, 2, 2, false, true>, 16, 2>": 8,
    "grouped_kernel<TileShape<CodedWeights<ExpertFormat4>, 2, 2, false, true>, 16, 2>": 24,
}


def short_name(mangled: str) -> str:
    """`grouped_kernel<TileShape<ExpertFormat0, 1, 2, false>, 16, 2>`: no namespaces, no parameters."""
    run = subprocess.run(["c++filt", "-p", mangled], capture_output=True, text=True)
    name = run.stdout.strip() or mangled
    name = re.sub(r"\((?:[\w ]+|\(anonymous namespace\))(?:::(?:[\w ]+|\(anonymous namespace\)))*\)(?=-?\d)",
                  lambda cast: cast.group(0)[1:-1], name)
    name = re.sub(r"(?:\(anonymous namespace\)|\w+)::", "", name)
    return name.removeprefix("void ")


def must_not_spill(name: str) -> bool:
    return any(re.fullmatch(rule, name) for rule in NO_SPILLS)


def kernels_of(output: str) -> list[dict]:
    """What `ptxas -v` says of each kernel."""
    kernels = []
    for line in output.splitlines():
        if found := re.search(r"Compiling entry function '(\w+)'", line):
            kernels.append({"name": short_name(found[1]), "registers": 0, "spilled": 0})
        elif not kernels:
            continue
        elif found := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            kernels[-1]["spilled"] = max(int(found[1]), int(found[2]))
        elif found := re.search(r"Used (\d+) registers", line):
            kernels[-1]["registers"] = int(found[1])
    return kernels


def refusals(record: dict, output: str) -> list[str]:
    why = []
    for line in output.splitlines():
        if re.search(r"\(C75\d\d\)", line):
            why.append(line.strip())
    for kernel in record["kernels"]:
        if kernel["spilled"] > MAY_SPILL.get(kernel["name"], 0) and must_not_spill(kernel["name"]):
            why.append(f"{kernel['name']} spills {kernel['spilled']} bytes of registers")
    if len(record["kernels"]) > MAX_KERNELS:
        why.append(f"has {len(record['kernels'])} kernels, more than {MAX_KERNELS}: split the file")
    if record["bytes"] > MAX_BYTES:
        why.append(f"takes {record['bytes'] >> 20} MiB of memory, more than {MAX_BYTES >> 20}: split the file")
    return why


def compile_file(command: list[str]) -> int:
    if "-c" not in command or "-o" not in command:
        return subprocess.run(command).returncode
    target = pathlib.Path(command[command.index("-o") + 1])
    run = subprocess.run([*command, "-Xptxas=-v"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    for line in run.stdout.splitlines():
        if not re.match(r"ptxas info|\s+\d+ bytes stack frame|\s*$", line):
            print(line)
    if run.returncode != 0:
        return run.returncode
    record = {
        "source": command[command.index("-c") + 1],
        "seconds": round(used.ru_utime + used.ru_stime, 1),
        "bytes": used.ru_maxrss * 1024,
        "kernels": kernels_of(run.stdout),
    }
    if why := refusals(record, run.stdout):
        for line in why:
            print(f"{record['source']}: refused: {line}")
        target.unlink(missing_ok=True)
        return 1
    pathlib.Path(f"{target}{SUFFIX}").write_text(json.dumps(record))
    return 0


def rules_without_kernels(records: list[dict]) -> list[str]:
    """A rule whose names are out of date guards nothing."""
    names = {kernel["name"] for record in records for kernel in record["kernels"]}
    return [rule for rule in NO_SPILLS if not any(re.fullmatch(rule, name) for name in names)] + sorted(
        name for name in MAY_SPILL if name not in names)


def print_table(folder: pathlib.Path) -> int:
    records = [json.loads(path.read_text()) for path in sorted(folder.rglob(f"*{SUFFIX}"))]
    print(f"{'CUDA file':<28} {'s':>5} {'MiB':>5} {'kernels':>7} {'registers':>9} {'spilled':>7}")
    for record in records:
        kernels = record["kernels"]
        print(f"{pathlib.Path(record['source']).name:<28} {record['seconds']:>5.1f} {record['bytes'] >> 20:>5} "
              f"{len(kernels):>7} {max((k['registers'] for k in kernels), default=0):>9} "
              f"{max((k['spilled'] for k in kernels), default=0):>7}"
              f"{f'  over {MANY_SECONDS} s' if record['seconds'] > MANY_SECONDS else ''}")
    print(f"{'all (0 s: from the cache)':<28} {sum(record['seconds'] for record in records):>5.1f}")
    stale = rules_without_kernels(records)
    for rule in stale:
        print(f"refused: no kernel of this build has the name '{rule}': correct the rule in {pathlib.Path(__file__).name}")
    return 1 if stale else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--table"]:
        sys.exit(print_table(pathlib.Path(sys.argv[2])))
    else:
        sys.exit(compile_file(sys.argv[1:]))
