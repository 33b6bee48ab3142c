#!/usr/bin/env python3
"""Scores the lines of a file with a model and with its adapter: how much more the adapter expects each of them.

    pip install motley-*.whl
    examples/score_file.py --model models/demo --adapter models/demo/adapters/jargon lines.txt > scores.jsonl

All lines run as one batch, base and adapter mixed. Each line of the output is an object; the summary is on standard error.
"""

import argparse
import json
import pathlib
import sys

import motley


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="models/demo", help="a folder, or ORG/NAME in the Hugging Face cache")
    parser.add_argument("--adapter", required=True, help="the same, of an adapter of this model")
    parser.add_argument("--device", default="auto")
    parser.add_argument("file", type=pathlib.Path, help="texts, one a line")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    lines = [line for line in options.file.read_text().splitlines() if line.strip()]
    with motley.LLM(options.model, {"adapter": options.adapter}, device=options.device) as llm:
        scores = llm.score(lines * 2, adapter=[None] * len(lines) + ["adapter"] * len(lines))
    gains = []
    for line, base, adapted in zip(lines, scores, scores[len(lines):]):
        tokens = max(len(base.token_ids) - 1, 1)  # the first has no log-probability
        gains.append((adapted.logprob - base.logprob) / tokens)
        print(json.dumps({"text": line, "tokens": len(base.token_ids), "base": base.logprob, "adapter": adapted.logprob,
                          "gain_a_token": gains[-1]}))
    if gains:
        print(f"{len(lines)} lines, mean gain {sum(gains) / len(gains):.3f} a token", file=sys.stderr)


if __name__ == "__main__":
    main()
