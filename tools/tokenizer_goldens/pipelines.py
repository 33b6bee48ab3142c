"""The pipelines of today's models, as small tokenizers: which parts they have, and how they are trained."""

import json
import string
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
QWEN2 = (
    CONTRACTIONS
    + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|")
QWEN35 = (
    CONTRACTIONS
    + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = [
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
]
MAX_CHARACTERS = 300
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


@dataclass
class Pipeline:
    name: str
    build: Callable[[], Tokenizer]
    tokens: int = 1500
    byte_level: bool = True
    first_tokens: list[str] = field(default_factory=list)  # of the vocabulary
    added: list[AddedToken] = field(default_factory=list)
    bos: str | None = None
    merges_as_strings: bool = False
    whole_words: list[str] = field(default_factory=list)  # of the vocabulary, and no merge builds them
    edit: Callable[[dict], None] = lambda file: None


def special(content: str, **flags: bool) -> AddedToken:
    return AddedToken(content, special=True, normalized=flags.pop("normalized", False), **flags)


def plain(content: str, **flags: bool) -> AddedToken:
    return AddedToken(content, special=False, normalized=flags.pop("normalized", False), **flags)


def splits(*expressions: str) -> pre_tokenizers.PreTokenizer:
    steps = [pre_tokenizers.Split(Regex(expression), "isolated") for expression in expressions]
    return pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def byte_level(pre_tokenizer: pre_tokenizers.PreTokenizer, normalizer=None, **options) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(**options))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def sentence_piece(**options) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True, **options))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


def llama2_legacy() -> Tokenizer:
    tokenizer = sentence_piece()
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return tokenizer


def llama2_metaspace() -> Tokenizer:
    tokenizer = sentence_piece()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
    return tokenizer


def mixed_characters() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]", fuse_unk=False))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Punctuation("contiguous"),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.Metaspace("▁", prepend_scheme="always", split=True),
        ]
    )
    tokenizer.decoder = decoders.Metaspace("▁", prepend_scheme="always", split=True)
    return tokenizer


def mixed_bytes() -> Tokenizer:
    steps = [normalizers.NFKC(), normalizers.Replace(Regex(r"\s{2,}"), " "), normalizers.Strip(left=False)]
    pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(",", "merged_with_previous"), pre_tokenizers.ByteLevel(add_prefix_space=True)]
    )
    return byte_level(pre_tokenizer, normalizers.Sequence(steps))


def mixed_words() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFKD()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Whitespace(),
            pre_tokenizers.Digits(individual_digits=False),
            pre_tokenizers.Split("e", "merged_with_next", invert=True),
        ]
    )
    return tokenizer


FLAGGED = [
    special("<left>", lstrip=True),
    special("<right>", rstrip=True),
    special("<both>", lstrip=True, rstrip=True),
    special("<word>", single_word=True),
    plain("wordy", single_word=True),
    plain("Wordy", single_word=True, normalized=True),
    plain("ÀÉ", normalized=True, lstrip=True),
    plain("two words", normalized=True, rstrip=True),
    special("Ω!", normalized=True),
    plain("<le"),
    plain("<left>>"),
]

QWEN_MARKERS = [
    special("<|endoftext|>"),
    special("<|im_start|>"),
    special("<|im_end|>"),
    plain("<tool_call>"),
    plain("</tool_call>"),
    plain("<think>"),
    plain("</think>"),
]

PIPELINES = [
    Pipeline(
        "qwen2",
        lambda: byte_level(splits(QWEN2), normalizers.NFC()),
        added=QWEN_MARKERS,
        merges_as_strings=True,
    ),
    Pipeline("qwen35", lambda: byte_level(splits(QWEN35), normalizers.NFC()), added=QWEN_MARKERS, tokens=900),
    Pipeline(
        "llama3",
        lambda: byte_level(splits(LLAMA3), ignore_merges=True),
        added=[
            special("<|begin_of_text|>"),
            special("<|end_of_text|>"),
            special("<|start_header_id|>"),
            special("<|end_header_id|>"),
            special("<|eot_id|>"),
        ],
        bos="<|begin_of_text|>",
        whole_words=["ĠMississippi", "zyx", "Straßenbahn", "Ġ日本語"],
    ),
    Pipeline(
        "o200k",
        lambda: byte_level(splits(O200K), ignore_merges=True),
        added=[
            special(f"<|{name}|>")
            for name in ["startoftext", "endoftext", "return", "constrain", "channel", "start", "end", "message", "call"]
        ],
        whole_words=["ĠgetHTTP"],
    ),
    Pipeline(
        "deepseek",
        lambda: byte_level(splits(*DEEPSEEK), normalizers.Sequence([])),
        added=[
            special("<｜begin▁of▁sentence｜>"),
            special("<｜end▁of▁sentence｜>"),
            plain("<｜User｜>"),
            plain("<｜Assistant｜>"),
            plain("<think>"),
            plain("</think>"),
        ],
        bos="<｜begin▁of▁sentence｜>",
    ),
    Pipeline(
        "neox",
        lambda: byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.NFC()),
        added=[
            special("<|endoftext|>"),
            special("|||IP_ADDRESS|||"),
            *(plain(" " * count, normalized=True) for count in range(24, 1, -1)),
        ],
        merges_as_strings=True,
    ),
    Pipeline(
        "llama2_legacy",
        llama2_legacy,
        byte_level=False,
        first_tokens=["<unk>", "<s>", "</s>", *BYTE_TOKENS],
        added=[special("<unk>"), special("<s>"), special("</s>")],
        bos="<s>",
        merges_as_strings=True,
    ),
    Pipeline(
        "llama2_metaspace",
        llama2_metaspace,
        byte_level=False,
        first_tokens=["<unk>", "<s>", "</s>", *BYTE_TOKENS],
        added=[special("<unk>"), special("<s>"), special("</s>"), plain("[INST]"), plain("[/INST]", lstrip=True)],
        bos="<s>",
    ),
    Pipeline(
        "mixed_characters",
        mixed_characters,
        tokens=700,
        byte_level=False,
        first_tokens=["[UNK]"],
        added=[special("[UNK]"), *FLAGGED],
    ),
    Pipeline("mixed_bytes", mixed_bytes, tokens=700, added=FLAGGED),
    Pipeline("mixed_words", mixed_words, tokens=700, byte_level=False, added=FLAGGED),
]


def _with_few_characters(texts: Iterable[str]) -> list[str]:
    """The texts without their rarer characters, so that a vocabulary of characters lacks some."""
    texts = list(texts)
    counts = Counter(character for text in texts for character in text)
    kept = set(sorted(counts, key=lambda character: (-counts[character], character))[:MAX_CHARACTERS])
    return ["".join(character for character in text if character in kept) for text in texts]


def train(pipeline: Pipeline, texts: Iterable[str]) -> dict:
    """The tokenizer.json of a pipeline."""
    tokenizer = pipeline.build()
    if pipeline.first_tokens and tokenizer.pre_tokenizer is None:
        # What the model will see of whole texts is learnt from words.
        tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    trainer = trainers.BpeTrainer(
        vocab_size=pipeline.tokens,
        special_tokens=pipeline.first_tokens,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if pipeline.byte_level else list(string.printable),
        limit_alphabet=5000,  # never reached: the trainer cuts at random between characters of one frequency
        show_progress=False,
    )
    learning = tokenizer
    if pipeline.name == "llama2_metaspace":
        learning = llama2_metaspace()
        learning.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="always", split=True)
    learning.train_from_iterator(list(texts) if pipeline.byte_level else _with_few_characters(texts), trainer)
    learnt = json.loads(learning.to_str())

    file = json.loads(pipeline.build().to_str())
    file["model"]["vocab"] = learnt["model"]["vocab"]
    file["model"]["merges"] = learnt["model"]["merges"]
    for word in pipeline.whole_words:
        file["model"]["vocab"].setdefault(word, len(file["model"]["vocab"]))
    tokenizer = Tokenizer.from_str(json.dumps(file))
    tokenizer.add_tokens(pipeline.added)
    if pipeline.bos is not None:
        template = processors.TemplateProcessing(
            single=f"{pipeline.bos} $A",
            pair=f"{pipeline.bos} $A {pipeline.bos}:1 $B:1",
            special_tokens=[(pipeline.bos, tokenizer.token_to_id(pipeline.bos))],
        )
        tokenizer.post_processor = (
            processors.Sequence([processors.ByteLevel(trim_offsets=False), template]) if pipeline.byte_level else template
        )
    file = json.loads(tokenizer.to_str())
    if pipeline.merges_as_strings:
        file["model"]["merges"] = [" ".join(pair) for pair in file["model"]["merges"]]
    pipeline.edit(file)
    return file
