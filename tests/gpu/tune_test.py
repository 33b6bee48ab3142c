#!/usr/bin/env python3
"""Thresholds that bench --tune measures on this GPU are those that --tuning uses, and answers stay what they are.

    tune_test.py MOTLEY MODEL
"""

import json
import pathlib
import subprocess
import sys
import tempfile


LONGEST = 120  # seconds of a command


def run(*words: object) -> subprocess.CompletedProcess[str]:
    try:
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=LONGEST)
    except subprocess.TimeoutExpired as late:
        sys.exit(f"{' '.join(map(str, words))} has not ended in {LONGEST} s:\n{late.stdout}")
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))} ends with status {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done


def score(motley: str, model: str, folder: pathlib.Path, *more: object) -> tuple[list[float], str]:
    lines, scores = folder / "lines.jsonl", folder / "scores.jsonl"
    lines.write_text(json.dumps({"token_ids": list(range(5, 200))}) + "\n")
    done = run(motley, "score", model, "--device", "cuda", "--input", lines, "--output", scores, *more)
    return json.loads(scores.read_text())["token_logprobs"][1:], done.stderr


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    motley, model = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        table = folder / "card.json"
        print(run(motley, "bench", model, "--device", "cuda", "--tune", "--output", table).stdout)
        tuning = json.loads(table.read_text())
        if not any(entry["kernels"] for entry in tuning["dense"]) or not tuning["experts"]:
            sys.exit("dense products and experts are to have rows")
        plain, _ = score(motley, model, folder)
        tuned, log = score(motley, model, folder, "--tuning", table)
        if "tuning.other" in log:
            sys.exit(f"the table is this card's and this model's:\n{log}")
        worst = max(abs(a - b) for a, b in zip(plain, tuned, strict=True))
        print(f"log-probabilities differ by {worst:.4f} at most")
        if worst > 0.2:
            sys.exit("other kernels are to round differently, no more")
        if score(motley, model, folder, "--batch-invariant")[0] != \
                score(motley, model, folder, "--batch-invariant", "--tuning", table)[0]:
            sys.exit("--batch-invariant is to give the same bits with the table and without it")
        # Every candidate comes to its end at every number of tokens, with adapters too.
        for codes in ("w4a16", "nvfp4", "fp8-block"):
            run(motley, "bench", "--shape", "qwen3-30b-a3b", "--format", codes, "--layers", 1, "--device", "cuda", "--tune",
                "--output", folder / f"{codes}.json")
        tuning["card"] = "another"
        table.write_text(json.dumps(tuning))
        if "tuning.other" not in score(motley, model, folder, "--tuning", table)[1]:
            sys.exit("another card's table is to be warned of")


if __name__ == "__main__":
    main()
