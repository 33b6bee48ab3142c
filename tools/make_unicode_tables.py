#!/usr/bin/env python3
"""Makes src/text/unicode/*_tables.cc: what the package `tokenizers` knows of each character.

    python3 tools/make_unicode_tables.py

needs `tokenizers` (0.23.3 made what is committed) and nothing else: every table is read off the package's own
behaviour, over all code points, because its parts are of different versions of Unicode. Seen with 0.23.3:

    Regex (Oniguruma), and \\w of the pre-tokenizer Whitespace   Unicode 16
    Digits, Lowercase                                           Unicode 17
    NFC, NFD, NFKC, NFKD, StripAccents                          Unicode 9 or 10
    Punctuation                                                 Unicode 8

White space is the same in all of them. Python's own case mappings only propose which characters may fold
together; the package decides, and is asked whether any other character folds too.
"""

import pathlib
import unicodedata

import tokenizers
from number_table import COLUMNS, NumberTable
from tokenizers import Regex, normalizers, pre_tokenizers

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "src" / "text" / "unicode"
SURROGATES = range(0xD800, 0xE000)
POINTS = [point for point in range(0x110000) if point not in SURROGATES]
EVERYTHING = "".join(map(chr, POINTS))

# The order is that of the enumeration Category.
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn".split()

# Names of properties in \p{...}, as spelled or with another case, blanks, hyphens and underscores.
PROPERTIES = """
    Any Assigned L LC Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf
    Cs Co Cn Letter Cased_Letter Uppercase_Letter Lowercase_Letter Titlecase_Letter Modifier_Letter Other_Letter
    Mark Combining_Mark Nonspacing_Mark Spacing_Mark Enclosing_Mark Number Decimal_Number Letter_Number
    Other_Number Punctuation Connector_Punctuation Dash_Punctuation Open_Punctuation Close_Punctuation
    Initial_Punctuation Final_Punctuation Other_Punctuation Symbol Math_Symbol Currency_Symbol Modifier_Symbol
    Other_Symbol Separator Space_Separator Line_Separator Paragraph_Separator Other Control Format Surrogate
    Private_Use Unassigned
    Alnum Alpha ASCII Blank Cntrl Digit Graph Lower Print Punct Space Upper XDigit Word
    Alphabetic Lowercase Uppercase White_Space WSpace Cased Case_Ignorable CI Ideographic Ideo Unified_Ideograph
    UIdeo Emoji Emoji_Component EComp Emoji_Modifier EMod Emoji_Modifier_Base EBase Emoji_Presentation EPres
    Extended_Pictographic ExtPict Regional_Indicator RI Variation_Selector VS ASCII_Hex_Digit AHex Hex_Digit Hex
    ID_Start IDS ID_Continue IDC XID_Start XIDS XID_Continue XIDC Dash Hyphen Diacritic Dia Extender Ext
    Grapheme_Base Gr_Base Grapheme_Extend Gr_Ext Join_Control Join_C Bidi_Control Bidi_C Math
    Default_Ignorable_Code_Point DI Noncharacter_Code_Point NChar Quotation_Mark QMark Sentence_Terminal STerm
    Terminal_Punctuation Term Soft_Dotted SD Radical Pattern_Syntax Pat_Syn Pattern_White_Space Pat_WS
    Adlam Adlm Ahom Anatolian_Hieroglyphs Hluw Arabic Arab Armenian Armn Avestan Avst Balinese Bali Bamum Bamu
    Bassa_Vah Bass Batak Batk Bengali Beng Bhaiksuki Bhks Bopomofo Bopo Brahmi Brah Braille Brai Buginese Bugi
    Buhid Buhd Canadian_Aboriginal Cans Carian Cari Caucasian_Albanian Aghb Chakma Cakm Cham Cherokee Cher
    Chorasmian Chrs Common Zyyy Coptic Copt Qaac Cuneiform Xsux Cypriot Cprt Cypro_Minoan Cpmn Cyrillic Cyrl
    Deseret Dsrt Devanagari Deva Dives_Akuru Diak Dogra Dogr Duployan Dupl Egyptian_Hieroglyphs Egyp Elbasan Elba
    Elymaic Elym Ethiopic Ethi Garay Gara Georgian Geor Glagolitic Glag Gothic Goth Grantha Gran Greek Grek
    Gujarati Gujr Gunjala_Gondi Gong Gurmukhi Guru Gurung_Khema Gukh Han Hani Hangul Hang Hanifi_Rohingya Rohg
    Hanunoo Hano Hatran Hatr Hebrew Hebr Hiragana Hira Imperial_Aramaic Armi Inherited Zinh Qaai
    Inscriptional_Pahlavi Phli Inscriptional_Parthian Prti Javanese Java Kaithi Kthi Kannada Knda Katakana Kana
    Kawi Kayah_Li Kali Kharoshthi Khar Khitan_Small_Script Kits Khmer Khmr Khojki Khoj Khudawadi Sind Kirat_Rai
    Krai Lao Laoo Latin Latn Lepcha Lepc Limbu Limb Linear_A Lina Linear_B Linb Lisu Lycian Lyci Lydian Lydi
    Mahajani Mahj Makasar Maka Malayalam Mlym Mandaic Mand Manichaean Mani Marchen Marc Masaram_Gondi Gonm
    Medefaidrin Medf Meetei_Mayek Mtei Mende_Kikakui Mend Meroitic_Cursive Merc Meroitic_Hieroglyphs Mero Miao
    Plrd Modi Mongolian Mong Mro Mroo Multani Mult Myanmar Mymr Nabataean Nbat Nag_Mundari Nagm Nandinagari Nand
    New_Tai_Lue Talu Newa Nko Nkoo Nushu Nshu Nyiakeng_Puachue_Hmong Hmnp Ogham Ogam Ol_Chiki Olck Ol_Onal Onao
    Old_Hungarian Hung Old_Italic Ital Old_North_Arabian Narb Old_Permic Perm Old_Persian Xpeo Old_Sogdian Sogo
    Old_South_Arabian Sarb Old_Turkic Orkh Old_Uyghur Ougr Oriya Orya Osage Osge Osmanya Osma Pahawh_Hmong Hmng
    Palmyrene Palm Pau_Cin_Hau Pauc Phags_Pa Phag Phoenician Phnx Psalter_Pahlavi Phlp Rejang Rjng Runic Runr
    Samaritan Samr Saurashtra Saur Sharada Shrd Shavian Shaw Siddham Sidd SignWriting Sgnw Sinhala Sinh Sogdian
    Sogd Sora_Sompeng Sora Soyombo Soyo Sundanese Sund Sunuwar Sunu Syloti_Nagri Sylo Syriac Syrc Tagalog Tglg
    Tagbanwa Tagb Tai_Le Tale Tai_Tham Lana Tai_Viet Tavt Takri Takr Tamil Taml Tangsa Tnsa Tangut Tang Telugu
    Telu Thaana Thaa Thai Tibetan Tibt Tifinagh Tfng Tirhuta Tirh Todhri Todr Toto Tulu_Tigalari Tutg Ugaritic
    Ugar Unknown Zzzz Vai Vaii Vithkuqi Vith Wancho Wcho Warang_Citi Wara Yezidi Yezi Yi Yiii Zanabazar_Square
    Zanb
""".split()
# Two brackets differ from the property of their name; so does \w inside a class from \w outside.
BRACKETS = {"[[:punct:]]": "[punct]", "[[:word:]]": "[word]"}

Ranges = list[tuple[int, int]]


def matched(expression: str) -> Ranges:
    """The characters that an expression for single characters matches."""
    split = pre_tokenizers.Split(Regex(f"(?:{expression})+"), "removed", invert=True)
    ranges = []
    for _, (begin, end) in split.pre_tokenize_str(EVERYTHING):
        first, last = POINTS[begin], POINTS[end - 1]
        if first < SURROGATES.start <= last:
            ranges += [(first, SURROGATES.start - 1), (SURROGATES.stop, last)]
        else:
            ranges.append((first, last))
    return ranges


def points_of(ranges: Ranges) -> set[int]:
    return {point for first, last in ranges for point in range(first, last + 1)}


def ranges_of(points: set[int]) -> Ranges:
    ranges: Ranges = []
    for point in sorted(points):
        if ranges and ranges[-1][1] == point - 1:
            ranges[-1] = (ranges[-1][0], point)
        else:
            ranges.append((point, point))
    return ranges


def write_file(subject: str, tables: list[str]) -> None:
    path = FOLDER / f"{subject}_tables.cc"
    path.write_text(
        f"// Made by tools/make_unicode_tables.py with tokenizers {tokenizers.__version__}.\n\n"
        '#include "text/unicode/tables.h"\n\n'
        "namespace motley::text::unicode::tables {\n\n// clang-format off\n"
        + "\n".join(tables)
        + "// clang-format on\n\n}  // namespace motley::text::unicode::tables\n"
    )
    print(f"{path.name}: {path.stat().st_size} bytes")


def delta_ranges(table: NumberTable, ranges: Ranges) -> None:
    """How many, and for each its distance from the end of the one before and its length less one."""
    table.number(len(ranges))
    after = 0
    for first, last in ranges:
        table.number(first - after)
        table.number(last - first)
        after = last + 1


# What unicode.h tells of a character, and the bits of its flags (tables.h).


def numeric_points() -> set[int]:
    between = "x" + "x".join(EVERYTHING.replace("x", "")) + "x"
    pieces = pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str(between)
    return {ord(piece) for piece, _ in pieces if len(piece) == 1 and piece != "x"}


def removed_points(step) -> set[int]:
    kept = set()
    for _, (begin, end) in step.pre_tokenize_str(EVERYTHING):
        kept.update(POINTS[begin:end])
    return set(POINTS) - kept


def word_points() -> set[int]:
    between = " ".join(f"a{char}a" for char in EVERYTHING)
    pieces = pre_tokenizers.Whitespace().pre_tokenize_str(between)
    return {ord(piece[1]) for piece, _ in pieces if len(piece) == 3 and piece[0] == piece[2] == "a"}


def mark_points() -> set[int]:
    strip = normalizers.StripAccents()
    return {point for point in POINTS if strip.normalize_str(chr(point)) == ""}


def character_table() -> str:
    category = dict.fromkeys(SURROGATES, CATEGORIES.index("Cs"))
    for index, name in enumerate(CATEGORIES):
        if name != "Cs":
            category.update(dict.fromkeys(points_of(matched(rf"\p{{{name}}}")), index))
    flags = [
        numeric_points(),
        removed_points(pre_tokenizers.Punctuation("removed")),
        word_points(),
        mark_points(),
        points_of(matched(r"\s")),
    ]
    assert flags[4] == removed_points(pre_tokenizers.WhitespaceSplit())
    values = {}
    runs = NumberTable()
    length, previous = 0, None
    for point in range(0x110000):
        value = category[point], sum(1 << bit for bit, points in enumerate(flags) if point in points)
        if value != previous and previous is not None:
            runs.number(length)
            runs.number(values.setdefault(previous, len(values)))
            length = 0
        previous = value
        length += 1
    runs.number(length)
    runs.number(values.setdefault(previous, len(values)))
    records = NumberTable()
    records.number(len(values))
    for kind, bits in values:
        records.number(kind)
        records.number(bits)
    return records.definition("character_records") + "\n" + runs.definition("character_runs")


# Properties of regular expressions.


def property_tables() -> list[str]:
    sets: dict[tuple, int] = {}
    names = {}
    table = NumberTable()
    wanted = [(rf"\p{{{name}}}", name.lower().replace("_", "")) for name in PROPERTIES] + list(BRACKETS.items())
    for expression, name in wanted:
        ranges = [] if name in ("cs", "surrogate") else matched(expression)
        if name not in ("cs", "surrogate"):
            assert ranges, name
        key = tuple(ranges)
        if key not in sets:
            sets[key] = len(sets)
            delta_ranges(table, ranges)
        names[name] = sets[key]
    rows = [f'{{"{name}",{names[name]}}},' for name in sorted(names)]
    lines, line = [], ""
    for row in rows:
        if len(line) + len(row) > COLUMNS:
            lines.append(line)
            line = ""
        line += row
    lines.append(line)
    listed = (
        "static const PropertyName property_name_list[] = {\n"
        + "\n".join(lines)
        + "\n};\nconst std::span<const PropertyName> property_names = property_name_list;\n"
    )
    return [listed, table.definition("property_sets")]


# Case folding.


def check_the_rest_is_alone(candidates: list[int]) -> None:
    """The stretches between candidates fold with nothing: not with one another either, since for any two of
    them one of these classes holds one and not the other."""
    bounds = [-1, *candidates, 0x110000]
    gaps = []
    for before, after in zip(bounds, bounds[1:]):
        gaps += ranges_of({point for point in range(before + 1, after) if point not in SURROGATES})
    for bit in range(len(gaps).bit_length()):
        for value in (0, 1):
            chosen = [gap for number, gap in enumerate(gaps) if number >> bit & 1 == value]
            inside = "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in chosen)
            assert points_of(matched(rf"(?i:[{inside}])")) == points_of(chosen)


def folding_table() -> str:
    proposed: dict[int, set[int]] = {}
    several: dict[str, list[int]] = {}
    lower = normalizers.Lowercase()
    for char in EVERYTHING:
        folded = char.casefold()
        if len(folded) > 1:
            several.setdefault(folded, []).append(ord(char))
        for other in (folded, char.lower(), char.upper(), char.title(), lower.normalize_str(char)):
            if len(other) == 1 and other != char:
                proposed.setdefault(ord(char), set()).add(ord(other))
                proposed.setdefault(ord(other), set()).add(ord(char))
    several_points = {point for points in several.values() for point in points}
    candidates = sorted(set(proposed) | several_points)
    listing = "\n".join(map(chr, candidates))

    def folds_with(point: int) -> tuple[int, ...]:
        split = pre_tokenizers.Split(Regex(rf"(?i)\x{{{point:x}}}"), "removed", invert=True)
        return tuple(ord(piece) for piece, _ in split.pre_tokenize_str(listing))

    classes = {}
    for point in candidates:
        together = folds_with(point)
        assert point in together
        for other in together:
            assert classes.setdefault(other, together) == together
    check_the_rest_is_alone(candidates)

    def canonical(together: tuple[int, ...]) -> int:
        folds = {ord(folded) for folded in (chr(point).casefold() for point in together) if len(folded) == 1}
        return min(folds & set(together), default=min(together))

    table = NumberTable()
    single = sorted({together for together in classes.values() if len(together) > 1 and not set(together) & several_points})
    table.number(len(single))
    after = 0
    for together in single:
        table.number(len(together))
        table.signed(canonical(together) - after)
        after = canonical(together)
        for point in together:
            if point != canonical(together):
                table.signed(point - canonical(together))
    table.number(len(several))
    for folded in sorted(several, key=lambda text: (len(text), text)):
        points = [ord(char) for char in folded]
        for point in points:
            assert point not in classes or canonical(classes[point]) == point, hex(point)
        assert set(several[folded]) == set(classes[several[folded][0]])
        split = pre_tokenizers.Split(Regex(f"(?i){folded}"), "removed", invert=True)
        assert [piece for piece, _ in split.pre_tokenize_str(chr(several[folded][0]))], folded
        table.text(points)
        table.text(several[folded])
    return table.definition("foldings")


# Lower case.


def lowercase_table() -> str:
    lower = normalizers.Lowercase()
    table = NumberTable()
    mapped = [(point, lower.normalize_str(chr(point))) for point in POINTS]
    mapped = [(point, text) for point, text in mapped if text != chr(point)]
    table.number(len(mapped))
    after = 0
    for point, text in mapped:
        table.number(point - after)
        after = point
        table.number(len(text))
        for char in text:
            table.signed(ord(char) - point)
    return table.definition("lowercase")


# Normal forms. Hangul syllables are computed.

HANGUL = range(0xAC00, 0xD7A4)


def combining_classes(canonical) -> dict[int, int]:
    """Classes as the package orders marks, found by marks whose class is the same in every version."""

    def swaps(first: str, second: str) -> bool:
        return first != second and canonical.normalize_str("a" + first + second) == "a" + second + first

    low, high = "\u0334", "\u0345"  # of the classes 1 and 240

    def is_ordered(char: str) -> bool:
        return swaps(char, low) or swaps(high, char)

    measures: dict[int, str] = {}
    for point in POINTS:
        char = chr(point)
        number = unicodedata.combining(char)
        if number and number not in measures and canonical.normalize_str(char) == char and is_ordered(char):
            measures[number] = char
    classes = {}
    for point in POINTS:
        char = chr(point)
        if point in HANGUL or canonical.normalize_str(char) != char or not is_ordered(char):
            continue
        numbers = [
            number
            for number, other in measures.items()
            if not swaps(char, other) and not swaps(other, char)
        ]
        assert len(numbers) == 1, (hex(point), numbers)
        classes[point] = numbers[0]
    return classes


def normal_form_tables() -> list[str]:
    canonical, compatible = normalizers.NFD(), normalizers.NFKD()
    composed = normalizers.NFC()
    classes = combining_classes(canonical)

    class_table = NumberTable()
    by_class: dict[int, set[int]] = {}
    for point, number in classes.items():
        by_class.setdefault(number, set()).add(point)
    class_table.number(len(by_class))
    for number in sorted(by_class):
        class_table.number(number)
        delta_ranges(class_table, ranges_of(by_class[number]))

    def decompositions(form, skip) -> list[tuple[int, str]]:
        return [
            (point, form.normalize_str(chr(point)))
            for point in POINTS
            if point not in HANGUL and form.normalize_str(chr(point)) != skip(chr(point))
        ]

    def decomposition_table(entries: list[tuple[int, str]]) -> NumberTable:
        table = NumberTable()
        table.number(len(entries))
        after = 0
        for point, text in entries:
            table.number(point - after)
            after = point
            table.text([ord(char) for char in text])
        return table

    canonical_entries = decompositions(canonical, lambda char: char)
    compatible_entries = decompositions(compatible, canonical.normalize_str)

    pairs = []
    for point, text in canonical_entries:
        if composed.normalize_str(text) != chr(point):
            continue
        if len(text) == 1:
            continue
        first = composed.normalize_str(text[:-1])
        assert len(first) == 1, hex(point)
        pairs.append((ord(first), ord(text[-1]), point))
    pairs.sort()
    pair_table = NumberTable()
    pair_table.number(len(pairs))
    after = 0
    for first, second, point in pairs:
        pair_table.number(first - after)
        after = first
        pair_table.number(second)
        pair_table.number(point)
    return [
        class_table.definition("combining_classes"),
        decomposition_table(canonical_entries).definition("canonical_decompositions"),
        decomposition_table(compatible_entries).definition("compatible_decompositions"),
        pair_table.definition("compositions"),
    ]


def main() -> None:
    write_file("character", [character_table()])
    write_file("property", property_tables())
    write_file("case", [folding_table(), lowercase_table()])
    write_file("normal_form", normal_form_tables())


if __name__ == "__main__":
    main()
