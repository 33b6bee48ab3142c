#!/usr/bin/env python3
"""Makes tests/regex/goldens: what the package `tokenizers` makes of characters and of regular expressions.

    python3 tools/make_regex_goldens.py tests/regex/goldens

needs `tokenizers` (0.23.3 made what is committed). Three files, one JSON value a line:

    splits.jsonl      a pattern, and texts with the bytes at which Split with behaviour Isolated cuts them
    forms.jsonl       texts in the normal forms, in lower case and without marks
    characters.jsonl  hashes over all code points: of sets for each property, of what each normalizer changes
"""

import json
import pathlib
import random
import sys

from tokenizers import Regex, normalizers, pre_tokenizers

import make_unicode_tables as tables

CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"

FAMILIES = {
    "qwen2": rf"(?i:{CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{TAIL}",
    "qwen3.5": rf"(?i:{CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{TAIL}",
    "llama3": rf"(?i:{CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{TAIL}",
    "o200k": rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+(?i:{CONTRACTIONS})?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*(?i:{CONTRACTIONS})?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{TAIL}",
    "deepseek_numbers": r"\p{N}{1,3}",
    "deepseek_cjk": "[一-龥぀-ゟ゠-ヿ]+",
    "deepseek_words": r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{TAIL}",
    "gpt2": rf"{CONTRACTIONS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+",
    "possessive": rf"(?i:'(?:[sdmt]|ll|ve|re))|[^\r\n\p{{L}}\p{{N}}]?+\p{{L}}++|\p{{N}}{{1,3}}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
}

TEXTS = [
    "The quick brown fox doesn't jump; it's 12,345.67 miles from HERE!",
    "I'LL we'Ve they'RE 'Tis 'ſ 'S\u017f o'clock 'll'll''s 's",
    "def f(x):\n\treturn x**2  # comment\r\n\r\n\r\n    if (a&&b) { c[0]->d = 'e'; }\n",
    "   leading\n\n \n  trailing   \t \n",
    "\u00a0\u2003nbsp\u3000wide\u2028line\u2029par\u0085nel\u200bzero\ufeffbom \u1680ogham",
    "中文分词测试，今天天气真好。２０２４年１２月３１日！漢字かなカナ混じり文ー々〆",
    "한국어 문장을 나눕니다. ㄱㄴㄷ 각\u1100\u1161\u11a8",
    "Привет, мир! ЁЖИК ёжик №5 Ѣ Ꙗ Ꚋ",
    "Ελληνικά ΣΊΣΥΦΟΣ σίσυφος ς ΐ ᾳ ᾼ",
    "שָׁלוֹם עולם ״ציטוט״ ־ ׃ العَرَبِيَّة مرحبا ١٢٣ ۴۵۶ ـــ \u200f\u202bRTL\u202c",
    "हिन्दी में क्या हाल है? १२३ தமிழ் தேர்வு ไทยไม่มีช่องว่าง ກຂຄ မြန်မာ ខ្មែរ བོད",
    "😀👍🏽👨‍👩‍👧‍👦🏳️‍🌈🇩🇪🇫🇷❤️‍🔥1️⃣ #️⃣ ©®™",
    "e\u0301e\u0301 n\u0303 a\u030a\u0323 Z\u0351\u036b\u0343a\u0308lgo \u0301alone \u20dd x\u20d7 \u0903",
    "ǅ ǈ ǋ ᾈ ʰˠ ªº ﬁ ﬃ ŉ ß ẞ İ ı K Å Ⅷ ⅷ ② ½ ² ³ ¼ ⒈ 〇 𝟘𝟙 𝓐𝓫 𐐀𐐨",
    "CamelCaseWord HTTPServer iPhone XMLHttpRequest ABCdefGHI aB'sCd'LL É'T",
    "1 12 123 1234 12345 1234567890 0x1F 3.14e-10 １２３４ ௧௨௩௪",
    "\x00\x01\x02\x07\x08\x0b\x0c\x1b\x1c\x1f\x7f\x80\x9f mixed\x00nul",
    "https://example.org/a/b?c=d&e=f#g user@host.example C:\\path\\file.txt ../../x",
    "$$\\frac{a}{b}$$ <|im_start|> <think>\n</think>\n\n```python\nprint()\n```\n| a | b |\n|---|---|",
    "-----=====*****_____ ...!!!??? ——…… «» “quotes” ‘single’ ¿¡ ‽ ⸮",
    "\r\r\n\n\r \r\n \n\r\t\t\n\v\f",
    "ⴀⴁ Ⴀ Ა ა ᏣᎳᎩ ꭰ ᲀ Ᲊ ᲊ Ɤ Ꟛ 𐵐𐵰 𑄀 𖹀 𞤀𞤢 𞥐",
    "\U00011f04\U0002ebf0\u1c89\U00010d50 \U00016d40\U00016d68 \U000e0041 \ue000 \U00100000 \ufffe \u0378",
    "a" * 300 + " " * 200 + "é" * 50 + "\n" * 40,
    "word " * 30 + "\t" * 9 + "end",
    "",
    " ",
    "\n",
    "'",
    "x",
]

# Constructs, each on texts of its own.
CONSTRUCTS = [
    (r"a|ab|abc", ["abcab", "a"]),
    (r"(a)(?:b)(?<n>c)(?'m'd)", ["abcdabc"]),
    (r"(?#note)a(?#\)x)b", ["ab"]),
    (r"(?x: a b # c" "\n" r" \ c [ d])", ["ab cab c ab  ab d"]),
    (r"a(?i)b|c", ["ab aB ac aC bC Ab"]),
    (r"a(?i:b(?-i:c))d", ["abcd aBcd abCd"]),
    (r"(?m:.)+|.", ["a\nb", "\r\n"]),
    (r".+", ["a\nb\r\nc\u2028d\u0085e"]),
    (r"\N+|\O", ["a\nb"]),
    (r"^.|.$", ["ab\ncd\n", "\n\n", "x\n\n"]),
    (r"\A.|.\z|.\Z", ["ab\n", "ab", "a\n\n"]),
    (r"\Ga", ["aaba"]),
    (r"\b.|.\B", ["ab c-d é1_²x", "\u200dа"]),
    (r"\w+", ["aé中_1²½\u0301\u200d①Ⅷ-"]),
    (r"[\w]+", ["aé中_1²½\u0301\u200d①Ⅷ-"]),
    (r"\W+|[\W]+", ["a²-b½"]),
    (r"\d+|\D", ["1२３x²"]),
    (r"\s+", [" \t\n\v\f\r\u0085\u00a0\u1680\u2003\u2028\u202f\u205f\u3000\u200b\u180e\x1c"]),
    (r"\h+|\H", ["0aFg９"]),
    (r"\R", ["\r\n\n\r\v\f\u0085\u2028\u2029\r\r\n"]),
    (r"\R\n", ["\r\n\n", "\r\n"]),
    (r"\x41\x{42}\u0043\060\o{104}\t\e\a", ["ABC0D\t\x1b\x07", "ABC"]),
    (r"\x{1F600}|\u4e2d", ["中😀"]),
    (r"\.\*\+\?\(\)\[\]\{\}\|\^\$\\\-\/\i\q", [".*+?()[]{}|^$\\-/iq"]),
    (r"[]a]+|[^]a]", ["]a]b"]),
    (r"[a-c-]+|[-x]|[x-]", ["abc-d-x"]),
    (r"[a-c-e]+", ["abcde-"]),
    (r"[\]\-\\\^]+|[a^]", ["]-\\^a"]),
    (r"[a[b[c]]]+|[^a[bc]]", ["abcd"]),
    (r"[a-z&&[^c]]+|[^a-z&&[^c]]", ["abcdC"]),
    (r"[a-z&&b-y&&[^m]]+", ["abmyz"]),
    (r"[\p{L}&&\p{ASCII}]+", ["aéb"]),
    (r"[^\p{L}\d]+|[\P{L}]", ["a1-é२"]),
    (r"[[:alpha:][:^punct:]]+", ["aé1-$ \n"]),
    (r"[[:punct:]]+|\p{Punct}", ["!$+<~«€"]),
    (r"[[:word:]]+|[[:space:]]|[[:cntrl:]]", ["a_²é\u00a0\x01"]),
    (r"[[:upper:]]+|[[:lower:]]+|[[:xdigit:]]|[[:blank:]]", ["aBÉé9\t\u3000ʰⅧ"]),
    (r"[[:graph:]]+|[[:print:]]|[[:ascii:]]", ["a \u00a0\x01\u0378中"]),
    (r"[:alpha:]+", ["a:plhx"]),
    (r"[\b]+", ["\b\b"]),
    (r"\p{Han}+|\p{hiragana}+|\p{Kata kana}+", ["漢字かなカナ々ー"]),
    (r"\p{Latin}+|\p{Grek}+|\p{CYRILLIC}+|\p{^Arabic}", ["aΑЖعא"]),
    (r"\p{Uppercase_Letter}|\p{other letter}+|\P{^Nd}", ["Aא中1"]),
    (r"\p{Emoji}+|\p{Extended_Pictographic}|\p{ID_Start}+", ["😀1©aé"]),
    (r"\pL+|\PN", ["pLLPN"]),
    (r"a?b*c+", ["abbccbcaac"]),
    (r"a??b|a*?b|a+?b", ["aab b"]),
    (r"a?+a|a*+b|a++c", ["aaab aac a"]),
    (r"a{2}|b{2,}|c{,2}d|e{1,2}f", ["aaabbbcccdeeef"]),
    (r"a{2,3}?|b{2}?|c{1,}?", ["aaaabbbcc"]),
    (r"a{2}+|b{1,2}+", ["aaaaabbb"]),
    (r"a{3,1}a|b{3,1}", ["aaaaabbbbb"]),
    (r"a{,}|b{|c{x}|d{1", ["a{,}b{c{x}d{1"]),
    (r"(?:ab|a)*b|(?:ab)+?c", ["ababb ababc"]),
    (r"(?:a|b?)*c|(?:a*)+d|(?:b??)+", ["aabcaad"]),
    (r"(?:ab{2}){2,3}|(?:a{1,2}b){3}", ["abbabbabb abaabab"]),
    (r"(?>a+)b|(?>ab|abc)d", ["aab abcd abd"]),
    (r"(?>[a-c]{1,3}+){2}|(?:[ab]+|c)++b", ["cbbFK abcb"]),
    (r"(?=ab)a|a(?!b).", ["abac"]),
    (r"(?=.*c)a|(?!.*c)b", ["abc abb"]),
    (r"(?<=a)b|(?<!a)c", ["abcacb"]),
    (r"(?<=ab|c)d|(?<![ab]{1,2})e", ["abdcd e ae bbe"]),
    (r"(?<=^|-)a|(?<=(?:ab){1,2})c", ["a-a ababc c"]),
    (r"(?i)straße|(?i:SS)x", ["STRASSE Straße STRAẞE ßx ẞx ſsx"]),
    (r"(?i)[ß]|(?i)[^k]", ["ssßẞSSkKK"]),
    (r"(?i)ﬃ|(?i:ffi)|(?i)[ﬀ]", ["ffi FFI ﬃ ﬀi fﬁ ﬀ FF"]),
    (r"(?i)i̇|(?i:ı)|(?i:i)", ["İ i̇ I\u0307 ı I i"]),
    (r"(?i)[a-z]+|(?i)\p{Lu}", ["aKſZé É"]),
    (r"(?i)[\p{Lu}]+", ["aBſß1"]),
    (r"(?i)ΰ|(?i)ŉ|(?i:ᾳ)", ["ΰ ΰ Υ\u0308\u0301 ŉ ʼN ᾳ ΑΙ ᾼ"]),
    (r"(?i)s\x73|(?i)s(?:s)", ["ß ss"]),
    (r"(?i)(?<=ß)a|(?<=ss)b", ["ßa ẞa ssa ssb ßb"]),
    (r"(?i)ꭰ|(?i)Ა|(?i)ᲀ", ["Ꭰꭰ Აა Вв"]),
    (r"(?i)σ+", ["Σσς"]),
    (r"", ["ab"]),
    (r"a*", ["baac"]),
    (r"|a", ["aa"]),
    (r"(|a)+", ["aa"]),
    (r"\s+(?!\S)|\s+", ["a  b \n c   "]),
    (r"(?:\r\n|\n){1,2}", ["\n\r\n\n"]),
    (r"[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}+", [" ab1234-cd"]),
]


def cuts(pattern: str, text: str) -> list[int]:
    """The bytes at which pieces begin, but the first."""
    pieces = pre_tokenizers.Split(Regex(pattern), "isolated").pre_tokenize_str(text)
    return [len(text[:begin].encode()) for _, (begin, _) in pieces if begin > 0]


def random_texts(count: int) -> list[str]:
    source = random.Random(5)
    pool = [char for text in TEXTS for char in text]
    likely = list(" '\n\r\tstdmlvre019.,!-_axAX") + ["ſ", "中", "\u0301", "\u00a0", "ß"]
    return [
        "".join(source.choice(source.choice([pool, likely])) for _ in range(source.randrange(1, 24)))
        for _ in range(count)
    ]


def write_lines(path: pathlib.Path, rows: list) -> None:
    text = "\n".join(json.dumps(row, ensure_ascii=True, separators=(",", ":")) for row in rows)
    path.write_text(text + "\n")
    print(path.name, path.stat().st_size, "bytes")


def splits() -> list:
    rows = []
    for name, pattern in FAMILIES.items():
        texts = TEXTS + random_texts(80)
        rows.append({"name": name, "pattern": pattern, "texts": [[text, cuts(pattern, text)] for text in texts]})
    for pattern, texts in CONSTRUCTS:
        rows.append({"name": pattern, "pattern": pattern, "texts": [[text, cuts(pattern, text)] for text in texts]})
    return rows


NORMALIZERS = {
    "nfc": normalizers.NFC(),
    "nfd": normalizers.NFD(),
    "nfkc": normalizers.NFKC(),
    "nfkd": normalizers.NFKD(),
    "lowercase": normalizers.Lowercase(),
    "without_marks": normalizers.StripAccents(),
}


def forms() -> list:
    source = random.Random(6)
    decompose = normalizers.NFKD()
    parts = sorted({ord(part) for point in tables.POINTS for part in decompose.normalize_str(chr(point))})
    marks = [point for point in tables.POINTS if tables.unicodedata.combining(chr(point))]
    hangul = [*range(0x1100, 0x1200), *range(0xAC00, 0xAC60)]
    wholes = [point for point in tables.POINTS if decompose.normalize_str(chr(point)) != chr(point)]
    texts = TEXTS[:23]
    for _ in range(90):
        kinds = source.choices([parts, marks, hangul, wholes, range(0x20, 0x7F)], [3, 4, 2, 3, 1], k=source.randrange(1, 9))
        texts.append("".join(chr(source.choice(kind)) for kind in kinds))
    return [
        {"text": text, **{name: form.normalize_str(text) for name, form in NORMALIZERS.items()}} for text in texts
    ]


class Hash:
    """FNV-1a over numbers, as text with a comma after each."""

    def __init__(self) -> None:
        self.value = 0xCBF29CE484222325

    def add(self, number: int) -> None:
        for byte in f"{number},".encode():
            self.value = (self.value ^ byte) * 0x100000001B3 % 2**64

    def text(self) -> str:
        return f"{self.value:016x}"


def ranges_hash(ranges) -> str:
    digest = Hash()
    for first, last in ranges:
        digest.add(first)
        digest.add(last)
    return digest.text()


def characters() -> list:
    rows = []
    for name, form in NORMALIZERS.items():
        digest = Hash()
        for point in tables.POINTS:
            changed = form.normalize_str(chr(point))
            if changed != chr(point):
                digest.add(point)
                for char in changed:
                    digest.add(ord(char))
        rows.append({"normalizer": name, "hash": digest.text()})
    predicates = {
        "numeric": tables.numeric_points(),
        "punctuation": tables.removed_points(pre_tokenizers.Punctuation("removed")),
        "word": tables.word_points(),
        "combining_mark": tables.mark_points(),
        "white_space": tables.removed_points(pre_tokenizers.WhitespaceSplit()),
    }
    rows += [{"predicate": name, "hash": ranges_hash(tables.ranges_of(points))} for name, points in predicates.items()]
    for name in tables.PROPERTIES:
        if name not in ("Cs", "Surrogate"):
            rows.append({"expression": rf"\p{{{name}}}", "hash": ranges_hash(tables.matched(rf"\p{{{name}}}"))})
    for expression in [r"\w", r"[\w]", r"\W", r"\s", r"\d", r"\h", r"\R", ".", "[[:punct:]]", "[[:word:]]", "[[:graph:]]"]:
        rows.append({"expression": expression, "hash": ranges_hash(tables.matched(expression))})
    return rows


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    write_lines(folder / "splits.jsonl", splits())
    write_lines(folder / "forms.jsonl", forms())
    write_lines(folder / "characters.jsonl", characters())


if __name__ == "__main__":
    main()
