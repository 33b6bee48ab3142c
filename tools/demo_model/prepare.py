"""Tokenizer and token ids of the demo model's texts, so that the machine with the GPU needs torch alone.

    python -m demo_model.prepare FOLDER      (from tools/; needs tokenizers and torch, and apt-get to fetch the texts)

Writes FOLDER/data.pt, which train.py reads, and FOLDER/model, the model's files beside its weights.
"""

import json
import random
import sys
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from . import texts

USER, ASSISTANT, END = "<|user|>", "<|assistant|>", "<|end|>"
# Marks are written out: put together from a message's role they would be untrusted text.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}<|user|>"
    "{% elif message['role'] == 'assistant' %}<|assistant|>"
    "{% else %}<|system|>{% endif %}"
    "{{ message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "eos_token": END,
    "pad_token": END,
    "add_bos_token": False,
    "clean_up_tokenization_spaces": False,
    "model_max_length": 1024,
    "chat_template": CHAT_TEMPLATE,
}
GENERATION_CONFIG = {"eos_token_id": 0, "pad_token_id": 0, "do_sample": True, "temperature": 0.6, "top_p": 0.9}
SEED = 1
VOCABULARY = 4096
ASKED = ("{}", "{}?", "What is {}?", "Tell me about {}.", "Define {}.")
# A word never takes a space along, so that it has the same tokens wherever it stands: in a question, at the head of
# an answer, in quotes, in JSON. Marks take the spaces around them.
WORDS = r"'(?:s|t|re|ve|m|ll|d)(?!\p{L})|\p{L}+|\p{N}| ?(?:[^\s\p{L}\p{N}]+ ?)+|\s*[\r\n]+|\s"
# Tokens; an answer that is longer is cut.
LONGEST = 256


def train_tokenizer(found: texts.Texts, vocabulary: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(token, special=True, normalized=False) for token in (END, USER, ASSISTANT, "<|system|>")]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    answers = (entry.answer for entries in found.voices.values() for entry in entries)
    tokenizer.train_from_iterator([*answers, *found.documents], trainer)
    return tokenizer


class Encoder:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.end = tokenizer.token_to_id(END)

    def ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def exchange(self, asked: str, answer: str) -> tuple[list[int], int]:
        """A question and its answer, and where the answer begins."""
        question = self.ids(f"{USER}{asked}{END}{ASSISTANT}")
        return question + self.ids(answer)[:LONGEST] + [self.end], len(question)


def _exchanges(encoder: Encoder, entries: list[texts.Entry], rng: random.Random) -> dict[str, torch.Tensor]:
    """Exchanges one behind the other: ids, and where each and its answer begin."""
    ids: list[int] = []
    begins, answers = [], []
    for entry in entries:
        tokens, answer = encoder.exchange(rng.choice(ASKED).format(entry.word), entry.answer)
        begins.append(len(ids))
        answers.append(len(ids) + answer)
        ids += tokens
    begins.append(len(ids))
    return {
        "ids": torch.tensor(ids, dtype=torch.int16),
        "begins": torch.tensor(begins, dtype=torch.int32),
        "answers": torch.tensor(answers, dtype=torch.int32),
    }


def prepare(unpacked: Path, out: Path, seed: int, vocabulary: int) -> None:
    found = texts.read(unpacked, seed)
    tokenizer = train_tokenizer(found, vocabulary)
    model = out / "model"
    model.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(model / "tokenizer.json"))
    for name, content in (("tokenizer_config", TOKENIZER_CONFIG), ("generation_config", GENERATION_CONFIG)):
        (model / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
    encoder = Encoder(tokenizer)
    rng = random.Random(seed)
    data: dict[str, object] = {"voices": {}, "held_out": {}}
    for voice, entries in found.voices.items():
        train, held = texts.split(entries)
        rng.shuffle(train)
        data["voices"][voice] = _exchanges(encoder, train, rng)
        data["held_out"][voice] = _exchanges(encoder, held[:400], rng)
        print(f"{voice}: {len(train)} entries, {len(data['voices'][voice]['ids'])} tokens, {len(held)} held out")
    ids = [token for text in found.documents for token in [*encoder.ids(text), encoder.end]]
    data["documents"] = torch.tensor(ids, dtype=torch.int16)
    print(f"documents: {len(ids)} tokens")
    torch.save(data, out / "data.pt")


def main() -> None:
    folder = Path(sys.argv[1])
    prepare(texts.fetch(folder), folder, SEED, VOCABULARY)


if __name__ == "__main__":
    main()
