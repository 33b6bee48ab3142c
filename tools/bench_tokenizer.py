#!/usr/bin/env python3
"""Measures motley's tokenizer and the `tokenizers` package on the same texts, one after the other, on one core.

    python tools/bench_tokenizer.py --program build/release/bench/bench_tokenizer english=FILE chinese=FILE

Tokenizers are trained for it on the same texts, in the shapes of the golden set. Without files it takes the golden
set's texts in random order. Needs tools/goldens-requirements.txt in a virtual environment.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import Tokenizer

from tokenizer_goldens import texts
from tokenizer_goldens.pipelines import PIPELINES, train

PROMPT_BYTES = 8192
SECONDS = 3


def _prompts(text: str) -> list[str]:
    """As the benchmark program cuts them."""
    data, prompts = text.encode(), []
    while data:
        end = min(PROMPT_BYTES, len(data))
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end += 1
        prompts.append(data[:end].decode())
        data = data[end:]
    return prompts


def _package(tokenizer: Tokenizer, prompts: list[str]) -> tuple[float, float]:
    """Megabytes a second encoded, and million tokens decoded; the best of several rounds."""
    size = sum(len(prompt.encode()) for prompt in prompts)
    encoded, best_encode, best_decode = [], 0.0, 0.0
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline or not encoded:
        start = time.perf_counter()
        encoded = [tokenizer.encode(prompt, add_special_tokens=False).ids for prompt in prompts]
        best_encode = max(best_encode, size / (time.perf_counter() - start) / 1e6)
    deadline = time.monotonic() + SECONDS
    tokens = sum(len(ids) for ids in encoded)
    while time.monotonic() < deadline or best_decode == 0:
        start = time.perf_counter()
        for ids in encoded:
            tokenizer.decode(ids)
        best_decode = max(best_decode, tokens / (time.perf_counter() - start) / 1e6)
    return best_encode, best_decode


def _motley(program: Path, tokenizer: Path, text: Path) -> tuple[float, float]:
    run = subprocess.run(
        [program, "--benchmark_format=json", f"--benchmark_min_time={SECONDS}", tokenizer, text],
        check=True,
        capture_output=True,
    )
    results = {entry["name"].split("/")[1]: entry for entry in json.loads(run.stdout)["benchmarks"]}
    return results["encode"]["bytes_per_second"] / 1e6, results["decode"]["items_per_second"] / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=Path, required=True, help="bench_tokenizer of a release build")
    parser.add_argument("--tokens", type=int, default=32000, help="size of the trained vocabularies")
    parser.add_argument("--only", action="append", help="this pipeline only (repeatable)")
    parser.add_argument("texts", nargs="*", metavar="NAME=FILE")
    arguments = parser.parse_args()
    files = dict(argument.split("=", 1) for argument in arguments.texts)
    inputs = {name: Path(file).read_text(errors="replace") for name, file in files.items()}
    inputs = inputs or {"mixed": "\n".join(texts.shuffled(4000, seed=3))}
    print(f"{platform.processor() or platform.machine()}, one thread; MB/s encoded, million tokens/s decoded")
    print("| pipeline | text | motley | package | ratio | motley decodes | package | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for pipeline in PIPELINES:
            if pipeline.name not in (arguments.only or ["qwen2", "llama3", "o200k", "deepseek", "neox", "llama2_legacy"]):
                continue
            pipeline.tokens = arguments.tokens
            path = Path(folder) / "tokenizer.json"
            path.write_text(json.dumps(train(pipeline, list(inputs.values()))))
            tokenizer = Tokenizer.from_file(str(path))
            for name, text in inputs.items():
                source = Path(folder) / name
                source.write_text(text)
                ours, theirs = _motley(arguments.program, path, source), _package(tokenizer, _prompts(text))
                columns = [
                    f"{mine:.1f} | {other:.1f} | {mine / other:.1f}" for mine, other in zip(ours, theirs, strict=True)
                ]
                print(f"| {pipeline.name} | {name} | {columns[0]} | {columns[1]} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
