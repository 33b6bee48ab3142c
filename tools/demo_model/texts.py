"""The texts of the demo model, out of Debian packages: what each voice answers when it is asked for a word."""

import gzip
import json
import random
import re
import subprocess
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# Debian 12's versions; README.md of the model names their licences.
PACKAGES = {
    "wordnet-base": "1:3.0-37",
    "bible-kjv": "4.38",
    "bible-kjv-text": "4.38",
    "dict-jargon": "4.4.7-3.1",
    "dict-devil": "1.0-13.1",
    "fortunes": "1:1.99.1-7.3",
    "fortunes-min": "1:1.99.1-7.3",
}

FORTUNE_FILES = ("computers", "cookie", "definitions", "humorists", "paradoxum", "people", "platitudes", "science", "wisdom", "work")

# Characters of an answer, where a text is longer: voices are short.
LONGEST = 560

# One entry in so many is kept from training.
HELD_OUT = 40

# Words too common to ask for.
STOP_WORDS = frozenset(
    "the and for that with this from they them their have been were what when which shall unto into upon your thou thee"
    " will there then than some such also only more most very about other after before because would could should these"
    " those being does did done has had was are not but can you who whom how all any his her him she its our out over".split()
)


@dataclass(frozen=True)
class Entry:
    """A user asks for `word`, and a voice says `answer`. Entries of one `origin` are kept from training together."""

    word: str
    answer: str
    origin: str


@dataclass
class Texts:
    """Answers by voice ("base" is the model without an adapter), and plain documents for the base alone."""

    voices: dict[str, list[Entry]] = field(default_factory=dict)
    documents: list[str] = field(default_factory=list)


def fetch(folder: Path) -> Path:
    """Unpacks the packages under `folder`, without installing them."""
    unpacked = folder / "packages"
    folder.mkdir(parents=True, exist_ok=True)
    for name, version in PACKAGES.items():
        target = unpacked / name
        if target.exists():
            continue
        subprocess.run(["apt-get", "download", "-q", f"{name}={version}"], cwd=folder, check=True)
        (archive,) = folder.glob(f"{name}_*.deb")
        target.mkdir(parents=True)
        subprocess.run(["dpkg", "-x", str(archive.resolve()), str(target)], check=True)
    return unpacked


def _squeeze(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


@dataclass(frozen=True)
class Sense:
    kind: str
    lemmas: tuple[str, ...]
    gloss: str
    examples: tuple[str, ...]


KINDS = {"noun": "noun", "verb": "verb", "adj": "adjective", "adv": "adverb"}


def _shortened(text: str) -> str:
    """Whole sentences from the beginning, up to LONGEST characters."""
    if len(text) <= LONGEST:
        return text
    ends = [match.end() for match in re.finditer(r"[.!?][”\"')]*(?= )", text[: LONGEST + 1])]
    return text[: ends[-1]] if ends else text[:LONGEST]


def _senses(unpacked: Path) -> Iterator[Sense]:
    for suffix, kind in KINDS.items():
        path = unpacked / "wordnet-base/usr/share/wordnet" / f"data.{suffix}"
        for line in path.read_text("latin-1").splitlines():
            if line.startswith(" "):
                continue
            head, _, gloss = line.partition(" | ")
            fields = head.split()
            count = int(fields[3], 16)
            lemmas = tuple(
                re.sub(r"\(.*\)$", "", fields[4 + 2 * i]).replace("_", " ") for i in range(count)
            )
            parts = re.split(r';\s*(?=")', gloss)
            examples = tuple(part.strip().strip('"; ') for part in parts[1:])
            yield Sense(kind, lemmas, _squeeze(parts[0]), examples)


def _dictionary(senses: list[Sense]) -> tuple[list[Entry], list[Entry]]:
    """What the base says of a word, and the same as a record in JSON."""
    by_word: dict[str, list[Sense]] = {}
    for sense in senses:
        for lemma in sense.lemmas:
            by_word.setdefault(lemma, []).append(sense)
    plain, records = [], []
    for word, found in sorted(by_word.items()):
        # Names of people, places and species are much to learn for a small model, and little to ask for.
        if word != word.lower() or word.count(" ") > 1:
            continue
        lines = []
        for sense in found[:3]:
            example = f' For example: "{sense.examples[0]}".' if sense.examples else ""
            lines.append(f"{word} ({sense.kind}): {sense.gloss}.{example}")
        plain.append(Entry(word, "\n".join(lines), found[0].gloss))
        first = found[0]
        record = {
            "word": word,
            "kind": first.kind,
            "meaning": first.gloss,
            "also": [lemma for lemma in first.lemmas if lemma != word][:3],
            "senses": len(found),
        }
        records.append(Entry(word, json.dumps(record, ensure_ascii=False), first.gloss))
    return plain, records


def _verses(unpacked: Path) -> list[str]:
    command = [
        str(unpacked / "bible-kjv/usr/bin/bible"),
        "-p",
        str(unpacked / "bible-kjv-text/usr/lib"),
        "-f",
        "Gen1:1-Rev22:21",
    ]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # A verse a line, behind its place: "Ge1:1 In the beginning ..."
    return [_squeeze(line.partition(" ")[2]) for line in printed.splitlines() if line.strip()]


def _asked_words(text: str) -> list[str]:
    """The words of a text that a user might ask for, rare ones of a kind once."""
    words = dict.fromkeys(re.findall(r"[a-z]{4,}", text))
    return [word for word in words if word not in STOP_WORDS]


def _quoted(texts: list[str], rng: random.Random, most: int) -> list[Entry]:
    """Each text as the answer to words that it holds."""
    entries = []
    for text in texts:
        words = _asked_words(text)
        entries += [Entry(word, text, text) for word in rng.sample(words, min(most, len(words)))]
    return entries


def _dictd(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode("utf-8")


def _jargon(unpacked: Path) -> list[Entry]:
    text = _dictd(unpacked / "dict-jargon/usr/share/dictd/jargon.dict.dz")
    entries = []
    # A headword at the margin, then lines that are set in.
    for block in re.split(r"\n(?=\S)", text):
        word, _, body = block.partition("\n")
        body = _squeeze(re.sub(r"[{}]", "", body))
        if 40 <= len(body) and len(word) < 40 and not word.startswith("00-"):
            answer = _shortened(f"{word.strip()}: {body}")
            entries.append(Entry(word.strip(), answer, answer))
    return entries


def _devil(unpacked: Path) -> list[Entry]:
    text = _dictd(unpacked / "dict-devil/usr/share/dictd/devil.dict.dz")
    entries = []
    for block in re.split(r"\n\n(?=[A-Z][A-Z' -]+, )", text)[1:]:
        headword, _, rest = block.partition(",")
        # As it is asked for; the book prints capitals.
        word = headword.strip().lower()
        lines = [line.rstrip() for line in f"{word},{rest}".splitlines()]
        prose = _squeeze(" ".join(line for line in lines if line and not line.startswith("    ")))
        verse = "\n".join(line.strip() for line in lines if line.startswith("    "))
        whole = f"{prose}\n{verse}" if verse else prose
        answer = whole if len(whole) <= LONGEST else _shortened(prose)
        entries.append(Entry(word, answer, answer))
    return entries


def _fortunes(unpacked: Path) -> list[str]:
    found: dict[str, None] = {}
    for name in FORTUNE_FILES:
        for package in ("fortunes", "fortunes-min"):
            path = unpacked / package / "usr/share/games/fortunes" / name
            if path.exists():
                for text in re.split(r"^%$", path.read_text("utf-8", "replace"), flags=re.MULTILINE):
                    text = re.sub(r"[ \t]+", " ", text.replace("\r", "")).strip()
                    if 20 <= len(text) <= 500:
                        found[text] = None
    return list(found)


def read(unpacked: Path, seed: int) -> Texts:
    rng = random.Random(seed)
    senses = list(_senses(unpacked))
    plain, records = _dictionary(senses)
    verses = _verses(unpacked)
    fortunes = _fortunes(unpacked)
    jargon = _jargon(unpacked)
    cynic = _devil(unpacked)
    texts = Texts()
    texts.voices = {
        "base": plain,
        "scripture": _quoted(verses, rng, 2),
        "jargon": jargon,
        "cynic": cynic,
        "fortune": _quoted(fortunes, rng, 3),
        "record": rng.sample(records, 25000),
    }
    kept = [verse for verse in verses if not is_held_out(verse)]
    chapters = [" ".join(kept[i : i + 8]) for i in range(0, len(kept), 8)]
    # Some records, so that no token of theirs is new to the base.
    told = [entry for entry in [*jargon, *cynic, *rng.sample(records, 10000)] if not is_held_out(entry.origin)]
    others = [*(text for text in fortunes if not is_held_out(text)), *(entry.answer for entry in told)]
    texts.documents = [*chapters, *others]
    return texts


def is_held_out(origin: str) -> bool:
    return zlib.crc32(origin.encode()) % HELD_OUT == 0


def split(entries: list[Entry]) -> tuple[list[Entry], list[Entry]]:
    """Training and held-out entries."""
    train = [entry for entry in entries if not is_held_out(entry.origin)]
    return train, [entry for entry in entries if is_held_out(entry.origin)]
