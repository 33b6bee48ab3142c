#!/usr/bin/env python3
"""The object files that a change of CUDA sources asks for, of a configured build: tools/changed_cuda.py [BUILD]

Sources are the .cu files, and the .cc files that only a build with CUDA compiles; they count as changed when they or
what they include differ from the tree that .ci/whole/cuda records. Without BUILD it prints those sources.
"""

import json
import pathlib
import shlex
import sys

import changed
import lint

ROOT = changed.ROOT
ONLY_WITH_CUDA = ("src/kernels/cuda/", "src/moe/cuda/", "tests/gpu/")
ALL = {"cmake/MotleyCuda.cmake", "tools/compile_cuda.py"}


def sources() -> set[pathlib.Path]:
    code = lint.code_files(ROOT)
    mine = {path for path in code
            if path.suffix == ".cu"
            or path.suffix == ".cc" and str(path.relative_to(ROOT)).startswith(ONLY_WITH_CUDA)}
    differs = changed.since_whole_run("cuda")
    if differs is None or {str(path.relative_to(ROOT)) for path in differs} & ALL:
        return mine
    includes = changed.Includes(code)
    # A kernel's headers count through any number of others; a host header where a file names it.
    near = includes.compiled(differs, (".cc",), all_of_them=False)
    far = includes.compiled(differs, (".cu",), all_of_them=True)
    return (near | far) & mine


def main() -> int:
    wanted = sources()
    if len(sys.argv) == 1:
        print(*sorted(path.relative_to(ROOT) for path in wanted), sep="\n", end="\n" if wanted else "")
        return 0
    build = pathlib.Path(sys.argv[1])
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if pathlib.Path(entry["file"]) in wanted:
            words = shlex.split(entry["command"])
            print(words[words.index("-o") + 1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
