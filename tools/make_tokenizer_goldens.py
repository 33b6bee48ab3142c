#!/usr/bin/env python3
"""Makes the tokenizers' golden set: small tokenizers in the shapes of today's models, and what they make of texts.

    python tools/make_tokenizer_goldens.py --out tests/text/goldens            # all
    python tools/make_tokenizer_goldens.py --out tests/text/goldens --check    # nothing is written; exit 1 if it differs

Needs tools/goldens-requirements.txt in a virtual environment. tests/text/goldens/README.md describes the result.
"""

import argparse
import json
import os
import random
import sys
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import Tokenizer

from tokenizer_goldens import texts
from tokenizer_goldens.pipelines import PIPELINES, train

RANDOM_DECODES = 40


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _readable(data: bytes) -> str | list[int]:
    """A text, or its bytes where they are none."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)


def _cases(tokenizer: Tokenizer, inputs: list[bytes]) -> list[str]:
    """A line a text: its ids, those that the post-processor adds around them, and what they decode to if not to it."""
    lines = []
    for number, data in enumerate(inputs):
        text = data.decode(errors="replace")
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        whole = tokenizer.encode(text, add_special_tokens=True).ids
        start = len(whole) - len(ids)
        assert whole[start:] == ids, "only what stands before a text is recorded"
        case = {"text": number, "ids": ids, "before": whole[:start]}
        for key, skip in (("decoded", False), ("skipped", True)):
            decoded = tokenizer.decode(whole, skip_special_tokens=skip)
            if decoded != text:
                case[key] = decoded
        lines.append(_line(case))
    return lines


def _decodes(tokenizer: Tokenizer, seed: str) -> list[str]:
    """A line a random sequence of ids, with the texts they decode to."""
    rng = random.Random(seed)
    size = tokenizer.get_vocab_size()
    added = sorted(tokenizer.get_added_tokens_decoder())
    lines = []
    for _ in range(RANDOM_DECODES):
        ids = [rng.choice(added) if rng.random() < 0.1 else rng.randrange(size + 3) for _ in range(rng.randint(1, 12))]
        if rng.random() < 0.5:
            ids = [rng.randrange(min(size, 300)) if rng.random() < 0.7 else identifier for identifier in ids]
        decoded = [tokenizer.decode(ids, skip_special_tokens=skip) for skip in (False, True)]
        lines.append(_line({"ids": ids, "decoded": decoded[0], "skipped": decoded[1]}))
    return lines


def _files() -> dict[str, str]:
    inputs = texts.cases()
    files = {"texts.jsonl": "".join(_line(_readable(data)) + "\n" for data in inputs)}
    for pipeline in PIPELINES:
        written = _line(train(pipeline, texts.training()))
        tokenizer = Tokenizer.from_str(written)
        files[f"{pipeline.name}/tokenizer.json"] = written + "\n"
        files[f"{pipeline.name}/encoded.jsonl"] = "".join(line + "\n" for line in _cases(tokenizer, inputs))
        files[f"{pipeline.name}/decoded.jsonl"] = "".join(line + "\n" for line in _decodes(tokenizer, pipeline.name))
    return files


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the folder of the golden set")
    parser.add_argument("--check", action="store_true", help="make anew and compare with --out")
    arguments = parser.parse_args()
    same = True
    for name, content in _files().items():
        path = arguments.out / name
        if not arguments.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        elif not path.exists() or path.read_text() != content:
            print(f"{name} differs")
            same = False
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
