"""A model folder that serves: a golden's weights, with a tokenizer and a chat template of its vocabulary's size."""

import json
import shutil
import tempfile
import unittest
from pathlib import Path

MARKS = ["<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<think>", "</think>"]
TEMPLATE = """{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}
<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def tokenizer(vocabulary: int) -> dict:
    """Bytes of ASCII, the marks, and pairs of letters up to the vocabulary's size."""
    tokens = [chr(c) for c in range(33, 127)] + ["Ġ", "Ċ"]
    letters = "etaoinshr"
    merges = [a + " " + b for a in letters for b in letters]
    merges = merges[: vocabulary - len(tokens) - len(MARKS)]
    tokens += [pair.replace(" ", "") for pair in merges]
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "added_tokens": [
            {"id": len(tokens) + i, "content": mark, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False, "special": mark.startswith("<|")}
            for i, mark in enumerate(MARKS)],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
                          "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
                    "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges},
    }


def make(golden: Path, folder: Path) -> None:
    """Copies what stands beside the weights, too: the golden's adapters."""
    shutil.copytree(golden, folder)
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = 512  # enough for a conversation with tools
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(config["vocab_size"])))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<|im_end|>", "chat_template": TEMPLATE}))


class Case(unittest.TestCase):
    """Tests with such a folder, made of the golden that a subclass names."""

    golden: Path

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.scratch.name) / "tiny"
        make(cls.golden, cls.folder)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()
