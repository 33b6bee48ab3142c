#!/usr/bin/env python3
"""Compares motley's tokenizer with the `tokenizers` package on random texts, ids and tokenizer files.

    python tools/fuzz_tokenizer.py --probe build/release/tests/text/tokenizer_probe --texts 100000
    python tools/fuzz_tokenizer.py --probe build/release/tests/text/tokenizer_probe --files 500

Needs tools/goldens-requirements.txt in a virtual environment. Prints what differs; exit 1 if anything does.
"""

import argparse
import copy
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import Tokenizer

from tokenizer_goldens import texts

GOLDENS = Path(__file__).resolve().parent.parent / "tests/text/goldens"
MAX_REPORTED = 10


class Texts:
    """Random texts: of characters of every kind, of words, and of what this tokenizer looks for."""

    def __init__(self, rng: random.Random, file: dict):
        self.rng = rng
        self.tokens = list(file["model"]["vocab"])
        self.added = [token["content"] for token in file.get("added_tokens") or []] or ["x"]
        self.words = [word for text in texts.sentences() + texts.CODE + texts.NUMBERS for word in text.split()]
        self.special_texts = texts.WHITE_SPACE + texts.EMOJI + texts.COMBINING + texts.CONTROL + texts.PUNCTUATION
        self.by_category: dict[str, list[str]] = {}
        for point in range(0x110000):
            category = unicodedata.category(chr(point))
            if category not in ("Cs", "Co", "Cn"):
                self.by_category.setdefault(category, []).append(chr(point))
        self.categories = sorted(self.by_category)
        self.spaces = [chr(point) for point in range(0x3001) if chr(point).isspace()]
        self.ascii = [chr(point) for point in range(128)]

    def _character(self) -> str:
        kind = self.rng.randrange(10)
        if kind < 3:
            return self.rng.choice(self.ascii)
        if kind < 7:
            return self.rng.choice(self.by_category[self.rng.choice(self.categories)])
        if kind == 7:
            return self.rng.choice(self.spaces)
        if kind == 8:
            return chr(self.rng.randrange(0x800))
        point = self.rng.randrange(0x110000)
        return chr(point) if not 0xD800 <= point < 0xE000 else "\ufffd"

    def _part(self) -> str:
        kind = self.rng.randrange(16)
        if kind < 3:
            return "".join(self._character() for _ in range(self.rng.randint(1, 6)))
        if kind < 6:
            return self.rng.choice(self.words)
        if kind < 8:
            return self.rng.choice([" ", " ", "  ", "\n", "\n\n", "\r\n", "\t", " \n", "   "])
        if kind == 8:
            return self.rng.choice(["'s", "'T", "'re", "'VE", "'m", "'Ll", "'d", "'ſ", "n't", "'"])
        if kind == 9:
            return str(self.rng.randrange(10 ** self.rng.randint(1, 9)))
        if kind == 10:
            return self.rng.choice(self.added)
        if kind == 11:
            token = self.rng.choice(self.added)
            return token[self.rng.randrange(len(token)) :][: self.rng.randint(1, len(token))]
        if kind == 12:
            text = self.rng.choice(self.special_texts) or " "
            start = self.rng.randrange(len(text))
            return text[start : start + self.rng.randint(1, 8)]
        if kind == 13:
            return self._character() * self.rng.randint(1, 30)
        if kind == 14:
            return self.rng.choice(self.tokens)
        return self.rng.choice("!?.,;:-_/\\|()[]{}<>@#$%^&*+=~`\"") * self.rng.randint(1, 3)

    def text(self) -> bytes:
        data = "".join(self._part() for _ in range(self.rng.randint(1, 12))).encode()
        if self.rng.random() < 0.05:
            at = self.rng.randrange(len(data))
            data = data[:at] + bytes(self.rng.randrange(256) for _ in range(self.rng.randint(1, 3))) + data[at + 1 :]
        return data


def _question(data: bytes) -> object:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"bytes": list(data)}


def _ask(probe: Path, file: Path, questions: list[object]) -> tuple[list[object] | None, str]:
    with tempfile.TemporaryFile("w+") as lines:
        lines.writelines(json.dumps(question) + "\n" for question in questions)
        lines.seek(0)
        run = subprocess.run([probe, file], stdin=lines, capture_output=True, check=False)
    if run.returncode != 0:
        return None, run.stderr.decode(errors="replace").strip()
    return [json.loads(line) for line in run.stdout.decode().split("\n")[:-1]], ""


def _compare(probe: Path, file: Path, tokenizer: Tokenizer, rng: random.Random, count: int) -> list[str] | None:
    """The differences, where the package answers at all, or None where motley refuses the file."""
    contents = json.loads(file.read_text())
    source = Texts(rng, contents)
    inputs = [source.text() for _ in range(count)]
    size = max(max(contents["model"]["vocab"].values()), max(tokenizer.get_added_tokens_decoder(), default=0)) + 3
    asked = []
    for _ in range(count // 10 + 1):
        ids = [rng.randrange(size) for _ in range(rng.randint(0, 12))]
        asked.append({"ids": ids, "skip": rng.random() < 0.5})
    answers, refusal = _ask(probe, file, [_question(data) for data in inputs] + asked)
    if answers is None:
        print(f"{file}: {refusal}")
        return None
    differences = []
    for data, answer in zip(inputs, answers):
        text = data.decode(errors="replace")
        try:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
        except BaseException:  # a panic of the package is no Exception
            continue
        if answer != ids:
            spelt = [[tokenizer.id_to_token(one) for one in many] if isinstance(many, list) else many for many in (answer, ids)]
            differences.append(f"{data!r}\n    motley  {spelt[0]}\n    package {spelt[1]}")
    for question, answer in zip(asked, answers[len(inputs) :]):
        try:
            text = tokenizer.decode(question["ids"], skip_special_tokens=question["skip"])
        except BaseException:
            continue
        if answer != text:
            spelt = [tokenizer.id_to_token(identifier) for identifier in question["ids"]]
            differences.append(f"{question} {spelt}\n    motley  {answer!r}\n    package {text!r}")
    return differences


def _report(name: str, differences: list[str]) -> None:
    for difference in differences[:MAX_REPORTED]:
        print(f"{name}: {difference}")
    if len(differences) > MAX_REPORTED:
        print(f"{name}: and {len(differences) - MAX_REPORTED} more")


def _random_normalizer(rng: random.Random) -> dict:
    # Replace has no pattern that matches nothing: the package then repeats what it writes, or panics.
    choices = [
        {"type": "NFC"},
        {"type": "NFD"},
        {"type": "NFKC"},
        {"type": "NFKD"},
        {"type": "Lowercase"},
        {"type": "StripAccents"},
        {"type": "ByteLevel"},
        {"type": "Prepend", "prepend": rng.choice(["▁", "a", " x"])},
        {"type": "Strip", "strip_left": rng.random() < 0.5, "strip_right": rng.random() < 0.5},
        {"type": "Replace", "pattern": {"String": rng.choice([" ", "a", "ab"])}, "content": rng.choice(["▁", "", "xy"])},
        {"type": "Replace", "pattern": {"Regex": rng.choice([r"\s+", "[aeiou]", "a|b+"])}, "content": rng.choice(["_", ""])},
    ]
    return rng.choice(choices)


def _random_pre_tokenizer(rng: random.Random) -> dict:
    behavior = rng.choice(["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"])
    flag = rng.random() < 0.5
    choices = [
        {"type": "Split", "pattern": {"String": rng.choice([" ", "a", ", ", "ab", ""])}, "behavior": behavior, "invert": flag},
        {
            "type": "Split",
            "pattern": {"Regex": rng.choice([r"\s+", r"\p{L}+", r"\d", "[aeiou]+|x*", r"\w+|[^\w\s]+", r"(?<=a)b|^."])},
            "behavior": behavior,
            "invert": flag,
        },
        {"type": "ByteLevel", "add_prefix_space": flag, "trim_offsets": True, "use_regex": rng.random() < 0.5},
        {"type": "Digits", "individual_digits": flag},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": rng.choice(["always", "first", "never"]), "split": flag},
        {"type": "Punctuation", "behavior": behavior},
        {"type": "Whitespace"},
        {"type": "WhitespaceSplit"},
    ]
    return rng.choice(choices)


def _random_decoder(rng: random.Random) -> dict:
    choices = [
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Replace", "pattern": {"String": rng.choice(["▁", "a", "ab", "e "])}, "content": rng.choice([" ", "", "ba"])},
        {"type": "Strip", "content": rng.choice([" ", "a", "▁"]), "start": rng.randrange(3), "stop": 0},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": rng.choice(["always", "first", "never"]), "split": True},
    ]
    return rng.choice(choices)


def _some(rng: random.Random, make, key: str) -> dict | None:
    members = [make(rng) for _ in range(rng.randrange(4))]
    if len(members) == 1:
        return members[0]
    return {"type": "Sequence", key: members} if members else None


def _random_file(rng: random.Random, bases: list[dict]) -> dict:
    file = copy.deepcopy(rng.choice(bases))
    if rng.random() < 0.7:
        file["normalizer"] = _some(rng, _random_normalizer, "normalizers")
    if rng.random() < 0.7:
        file["pre_tokenizer"] = _some(rng, _random_pre_tokenizer, "pretokenizers")
    if rng.random() < 0.7:
        file["decoder"] = _some(rng, _random_decoder, "decoders")
    model = file["model"]
    for option in ("fuse_unk", "byte_fallback", "ignore_merges"):
        if rng.random() < 0.3:
            model[option] = rng.random() < 0.5
    if rng.random() < 0.3:
        model["unk_token"] = rng.choice([None, next(iter(model["vocab"]))])
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    contents = rng.sample(
        ["a", "ab", "abc", " a", "b ", "É", "e", "é", "  ", " ", "\n", "A", "<s>", "<s", "s>", "▁", "▁a", "word", "or", "Ω", "ﬁ", "1"], 6
    )
    next_id = len(model["vocab"])
    file["added_tokens"] = []
    for content in contents:
        identifier = model["vocab"].get(content)
        if identifier is None:
            identifier, next_id = next_id, next_id + 1
        token = {"id": identifier, "content": content} | {flag: rng.random() < 0.4 for flag in flags}
        file["added_tokens"].append(token)
    file["post_processor"] = None
    return file


def _fuzz_files(probe: Path, seed: int, count: int) -> bool:
    rng = random.Random(seed)
    bases = [json.loads(path.read_text()) for path in sorted(GOLDENS.glob("*/tokenizer.json"))]
    same, refused, unread = True, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        for number in range(count):
            file = _random_file(rng, bases)
            path.write_text(json.dumps(file))
            try:
                tokenizer = Tokenizer.from_file(str(path))
            except BaseException:
                unread += 1
                continue
            differences = _compare(probe, path, tokenizer, random.Random(number), 200)
            refused += differences is None
            if differences:
                same = False
                parts = {key: file[key] for key in ("normalizer", "pre_tokenizer", "decoder", "added_tokens")}
                parts["model"] = {key: value for key, value in file["model"].items() if key not in ("vocab", "merges")}
                print(json.dumps(parts, ensure_ascii=False))
                _report(f"file {number}", differences)
    print(f"{count} files, {refused} refused by motley, {unread} that the package can't read")
    return same


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--probe", type=Path, required=True, help="the program tokenizer_probe of a build")
    parser.add_argument("--texts", type=int, default=0, help="random texts for each tokenizer of the golden set")
    parser.add_argument("--files", type=int, default=0, help="random tokenizer files, with 200 texts each")
    parser.add_argument("--only", help="this tokenizer of the golden set only")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    same = True
    for path in sorted(GOLDENS.glob("*/tokenizer.json")):
        name = path.parent.name
        if arguments.texts == 0 or arguments.only not in (None, name):
            continue
        rng = random.Random(f"{name} {arguments.seed}")
        differences = _compare(arguments.probe, path, Tokenizer.from_file(str(path)), rng, arguments.texts)
        same = same and differences == []
        _report(name, differences or [])
        print(f"{name}: {arguments.texts} texts, {'same' if differences == [] else 'DIFFERENT'}")
    if arguments.files > 0:
        same = _fuzz_files(arguments.probe, arguments.seed, arguments.files) and same
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
