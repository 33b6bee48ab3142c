"""An adapter whose numbers overflow in the middle of a stream: overflow_test.py MOTLEY GOLDEN"""

import concurrent.futures
import json
import re
import shutil
import struct
import sys
import tempfile
import unittest
from pathlib import Path

import tiny_model
from server_process import SMALL, ServerProcess, until

MOTLEY, GOLDEN = Path(sys.argv.pop(1)), Path(sys.argv.pop(1))
NAME = "overflows"
BROKEN = "Q"  # the token whose embedding overflows
LARGE = struct.pack("<f", 3e38)[2:]  # as bf16


def write_adapter(source: Path, target: Path, vocabulary: int) -> None:
    """The embeddings of one token overflow, and no other's are changed."""
    shutil.copytree(source, target)
    path = target / "adapter_model.safetensors"
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header, data = json.loads(content[8:8 + size]), bytearray(content[8 + size:])
    column = ord(BROKEN) - 33  # in the tokenizer of tiny_model
    for name, entry in header.items():
        if "lora_embedding" not in name:
            continue
        begin, end = entry["data_offsets"]
        if name.endswith("_B"):
            values = LARGE * ((end - begin) // 2)
        else:
            rows, columns = entry["shape"]
            assert columns == vocabulary
            values = b"".join(LARGE if i % columns == column else b"\0\0" for i in range(rows * columns))
        data[begin:end] = values
    path.write_bytes(content[:8 + size] + bytes(data))


class Overflow(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        folder = Path(cls.scratch.name) / "tiny"
        tiny_model.make(GOLDEN, folder)
        adapters = folder / "adapters"
        vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]
        write_adapter(adapters / "embeddings", adapters / NAME, vocabulary)
        cls.server = ServerProcess(MOTLEY, folder, *SMALL, "--adapter", f"{NAME}={adapters / NAME}",
                                   "--adapter", f"all={adapters}/all_linear")

    @classmethod
    def tearDownClass(cls):
        cls.server.close()
        cls.scratch.cleanup()

    def ask(self, path: str, body: dict) -> tuple[int, str, str]:
        """Status, type and text of the answer."""
        status, text, headers = self.server.ask(path, {"temperature": 0, "max_tokens": 24} | body)
        return status, headers.get("Content-Type", ""), text

    def failures(self) -> dict:
        return {name: int(value) for name, value in
                re.findall(r'^motley_non_finite_logits_total\{adapter="(.*)"\} (\d+)$', self.server.get("/metrics"),
                           re.MULTILINE)}

    def settled_failures(self, expected: int) -> dict:
        """The engine publishes its counts between steps: an answer can be there before them."""
        return until(f"{expected} failures of {NAME}",
                     lambda: failures if (failures := self.failures()).get(NAME) == expected else None, self.failures)

    def test_the_error_is_the_last_event_and_others_do_not_notice(self):
        text = f"12{BROKEN}34"
        prompt = {"model": NAME, "stream": True, "guided_regex": text}
        chat = {"messages": [{"role": "user", "content": "hello"}]}
        beside = [{"model": model, "prompt": words, "stream": stream, "logprobs": 2}
                  for model in ("tiny", "all") for words in ("the rain in", "some near sea") for stream in (True, False)]
        # With the same adapter, but without the token.
        beside.append({"model": NAME, "prompt": "the rain in", "guided_regex": "12+34", "logprobs": 2})
        beside.append({"model": NAME, "prompt": "the rain in", "guided_regex": "12+34", "logprobs": 2, "stream": True})

        def same(answer: tuple) -> tuple:
            return answer[0], re.sub(r'"(id|created)":("[^"]*"|\d+)', "", answer[2])

        alone = [same(self.ask("/v1/completions", body)) for body in beside]
        self.assertEqual({status for status, _ in alone}, {200})
        rounds = 4
        with concurrent.futures.ThreadPoolExecutor(32) as clients:
            for _ in range(rounds):
                broken = [clients.submit(self.ask, "/v1/completions", prompt | {"prompt": "the rain in"}),
                          clients.submit(self.ask, "/v1/chat/completions", prompt | chat)]
                answers = [clients.submit(self.ask, "/v1/completions", body) for body in beside]
                for answer in broken:
                    self.check_broken(*answer.result(), text[:text.index(BROKEN) + 1])
                self.assertEqual([same(answer.result()) for answer in answers], alone)
        failures = self.settled_failures(2 * rounds)
        self.assertEqual(failures.pop(NAME), 2 * rounds)
        self.assertEqual(set(failures.values()), {0}, failures)
        lines = [line for line in self.server.lines().splitlines() if "engine.non_finite_logits" in line]
        self.assertEqual(len(lines), 1, "one line a minute")
        self.assertIn(NAME, lines[0])

    def check_broken(self, status: int, kind: str, body: str, said: str) -> None:
        self.assertEqual((status, kind), (200, "text/event-stream; charset=utf-8"))
        self.assertNotIn("[DONE]", body)
        *events, last = [json.loads(event.removeprefix("data: ")) for event in body.strip().split("\n\n")]
        choices = [choice for event in events for choice in event["choices"]]
        self.assertEqual("".join(choice.get("text") or choice.get("delta", {}).get("content") or ""
                                 for choice in choices), said)
        self.assertEqual({choice["finish_reason"] for choice in choices}, {None})
        self.assertEqual(last["error"]["code"], "non_finite_logits")
        self.assertIn(f"'{NAME}'", last["error"]["message"])


if __name__ == "__main__":
    unittest.main()
