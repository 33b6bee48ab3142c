"""Tokens in, tokens out, with the demo's model: generate_test.py MOTLEY MODEL

MODEL is models/demo. Answers of /inference/v1/generate are those of /v1/completions, whole and streamed; a drawn token has
the rank that a prompt's token has in the same place.
"""

import ast
import base64
import json
import struct
import sys
import unittest
from pathlib import Path

from server_process import ServerProcess

MOTLEY, MODEL = Path(sys.argv.pop(1)), Path(sys.argv.pop(1)).resolve()
SMALL = ("--device", "cpu", "--kv-memory", "16M", "--adapter-memory", "32M", "--no-adapter-check", "--compute", "f32",
         "--batch-invariant")
ROUTE = "/inference/v1/generate"


def matrix(text: str) -> list[tuple]:
    """The rows of a .npy file of float32 in base64."""
    data = base64.b64decode(text)
    assert data[:8] == b"\x93NUMPY\x01\x00"
    length, = struct.unpack("<H", data[8:10])
    head = ast.literal_eval(data[10:10 + length].decode())
    assert head["descr"] == "<f4" and not head["fortran_order"], head
    rows, columns = head["shape"]
    numbers = struct.unpack(f"<{rows * columns}f", data[10 + length:])
    return [numbers[at * columns:(at + 1) * columns] for at in range(rows)]


class Generate(unittest.TestCase):
    def setUp(self):
        self.server = ServerProcess(MOTLEY, MODEL, *SMALL, "--adapter", f"policy={MODEL / 'adapters' / 'cynic'}")
        self.addCleanup(self.server.close)
        self.model = "policy"

    def post(self, path: str, body: dict) -> dict:
        status, text, _ = self.server.ask(path, body)
        self.assertEqual(status, 200, text)
        return json.loads(text)

    def ids(self, text: str) -> list[int]:
        return self.post("/tokenize", {"prompt": text})["tokens"]

    def events(self, body: dict) -> list[dict]:
        status, text, _ = self.server.ask(ROUTE, body | {"stream": True})
        self.assertEqual(status, 200, text)
        lines = [line.removeprefix("data: ") for line in text.splitlines() if line]
        self.assertEqual(lines.pop(), "[DONE]")
        return [json.loads(line) for line in lines]

    def test_answers_are_those_of_completions(self):
        for seed, text in enumerate(("once upon a time", "a king", "bread")):
            prompt = self.ids(text)
            sampling = {"max_tokens": 20, "temperature": 1.0, "seed": seed, "n": 2, "logprobs": 3, "ignore_eos": True}
            body = {"model": self.model, "token_ids": prompt, "sampling_params": sampling}
            answer = self.post(ROUTE, body)
            completion = self.post("/v1/completions", {
                "model": self.model, "prompt": prompt, "return_token_ids": True, "top_p": 1, "top_k": 0} | sampling)
            for mine, theirs in zip(answer["choices"], completion["choices"], strict=True):
                self.assertEqual(mine["token_ids"], theirs["token_ids"])
                entries = mine["logprobs"]["content"]
                self.assertEqual([each["logprob"] for each in entries], theirs["logprobs"]["token_logprobs"])
                for entry, token in zip(entries, mine["token_ids"], strict=True):
                    self.assertEqual(entry["token"], f"token_id:{token}")
                    self.assertEqual(entry["top_logprobs"][0]["token_id"], token)
                    self.assertTrue(all(isinstance(each["rank"], int) for each in entry["top_logprobs"]))
            self.check_stream(body, answer)
            self.check_ranks(prompt, answer["choices"][0])

    def check_stream(self, body: dict, answer: dict):
        choices = [{"token_ids": [], "content": []} for _ in answer["choices"]]
        for event in self.events(body):
            part, = event["choices"]
            choice = choices[part["index"]]
            choice["token_ids"] += part["token_ids"]
            choice["content"] += part["logprobs"]["content"]
            if part["finish_reason"]:
                choice["versions"] = part["weight_versions"]
        for whole, choice in zip(answer["choices"], choices, strict=True):
            self.assertEqual(choice["token_ids"], whole["token_ids"])
            self.assertEqual(choice["content"], whole["logprobs"]["content"])
            self.assertEqual(choice["versions"], whole["weight_versions"])

    def check_ranks(self, prompt: list[int], choice: dict):
        """The answer as a prompt: only its own tokens are scored, and what comes before is in the cache."""
        answer = choice["token_ids"]
        scored = self.post(ROUTE, {
            "model": self.model, "token_ids": prompt + answer,
            "sampling_params": {"max_tokens": 0, "prompt_logprobs": 1, "prompt_logprob_start": -len(answer)}})
        listed = scored["prompt_logprobs"]
        self.assertEqual(listed[:len(prompt)], [None] * len(prompt))
        for token, entry, scores in zip(answer, choice["logprobs"]["content"], listed[len(prompt):], strict=True):
            self.assertEqual(entry["rank"], scores[str(token)]["rank"])
            self.assertAlmostEqual(entry["logprob"], scores[str(token)]["logprob"], places=4)

    def test_scores_of_the_end_come_out_of_the_cache(self):
        prompt = self.ids("the rain in the plain and the king of all the bread " * 8)
        whole = self.post(ROUTE, {"token_ids": prompt, "sampling_params": {"max_tokens": 0, "prompt_logprobs": 2}})
        end = {"token_ids": prompt, "sampling_params": {"max_tokens": 0, "prompt_logprobs": 2,
                                                        "prompt_logprob_start": -5}}
        first, second = self.post(ROUTE, end), self.post(ROUTE, end)
        self.assertEqual(first["prompt_logprobs"], second["prompt_logprobs"])
        self.assertEqual(first["prompt_logprobs"][-5:], whole["prompt_logprobs"][-5:])
        cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertGreater(cached, 0)
        self.assertLessEqual(cached, len(prompt) - 6)

    def test_named_tokens_have_their_scores(self):
        prompt = self.ids("once upon a time")
        count = len(prompt) - 1
        whole = self.post(ROUTE, {"token_ids": prompt, "sampling_params": {"max_tokens": 0, "prompt_logprobs": 3}})
        likeliest = [[int(token) for token in list(entry)[:3]] for entry in whole["prompt_logprobs"][1:]]
        named = [ids + [-1] for ids in likeliest]
        for body in ({"token_ids": prompt, "sampling_params": {"max_tokens": 0, "prompt_logprob_token_ids": named}},
                     {"token_ids": prompt, "sampling_params": {"max_tokens": 0, "prompt_logprob_token_ids": named[-2:],
                                                               "prompt_logprob_start": count - 2}}):
            rows = matrix(self.post(ROUTE, body)["prompt_token_id_logprobs"])
            for row, ids, entry in zip(rows[::-1], likeliest[::-1], whole["prompt_logprobs"][::-1], strict=False):
                self.assertEqual(row[3], float("-inf"))
                for score, token in zip(row, ids, strict=False):
                    self.assertAlmostEqual(score, entry[str(token)]["logprob"], places=6)

    def test_broken_bodies_are_refused(self):
        prompt = self.ids("bread")
        for more in ({"token_ids": []}, {"token_ids": [-1]}, {"token_ids": [10**9]}, {"token_ids": {}},
                     {"sampling_params": 7}, {"sampling_params": {"logprobs": [1]}}, {"output_mode": "derender"},
                     {"features": {"mm_hashes": {"image": ["a"]}}}, {"model": "unknown"},
                     {"sampling_params": {"prompt_logprob_token_ids": [[0]] * 100_000}},
                     {"sampling_params": {"prompt_logprob_token_ids": [[0] * 5000]}}):
            status, text, _ = self.server.ask(ROUTE, {"token_ids": prompt} | more)
            self.assertIn(status, (400, 404), text)
            self.assertIn("message", json.loads(text)["error"])
        self.assertTrue(self.post(ROUTE, {"token_ids": prompt, "sampling_params": {"max_tokens": 1}})["choices"])


unittest.main()
