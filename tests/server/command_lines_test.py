"""Other tools' command lines start a server that answers: command_lines_test.py MOTLEY DEMO

The lines are those of tests/command_lines/lines.txt, with the demo's folders for theirs and a port of the kernel's choice.
"""

import json
import shlex
import sys
import tempfile
import unittest
from pathlib import Path

from server_process import ServerProcess

MOTLEY, DEMO = Path(sys.argv.pop(1)), Path(sys.argv.pop(1))
LINES = Path(__file__).resolve().parent.parent / "command_lines" / "lines.txt"
ON_A_CPU = ("--device", "cpu", "--kv-memory", "16M", "--adapter-memory", "16M")


def line(name: str) -> str:
    text = LINES.read_text().split(f"[{name}]\n", 1)[1].split("\n[", 1)[0]
    return "\n".join(each for each in text.splitlines() if not each.startswith("#")).replace("\\\n", " ")


def options(name: str, **places: str) -> list[str]:
    """The words after the model, without the port."""
    text = line(name)
    for written, place in places.items():
        assert written in text, (written, name)
        text = text.replace(written, place)
    words = shlex.split(text)
    words = words[words.index("serve") + 2:]
    if "--port" in words:
        at = words.index("--port")
        del words[at:at + 2]
    return [word for word in words if not word.startswith("--port=")]


class CommandLines(unittest.TestCase):
    def serve(self, *words: str) -> ServerProcess:
        server = ServerProcess(MOTLEY, DEMO, *ON_A_CPU, *words)
        self.addCleanup(server.close)
        return server

    def complete(self, server: ServerProcess, model: str, prompt: str = "a stone", **fields) -> dict:
        body = {"model": model, "prompt": prompt, "max_tokens": 4, "temperature": 0} | fields
        status, text = server.post("/v1/completions", body)
        return json.loads(text) | {"status": status}

    def test_kserve(self):
        adapters = {f"/mnt/lora/{name}": str(DEMO / "adapters" / folder)
                    for name, folder in (("sql-adapter", "cynic"), ("code-adapter", "jargon"))}
        server = self.serve(*options("kserve llm", **adapters))
        cards = json.loads(server.get("/v1/models"))["data"]
        self.assertEqual([card["id"] for card in cards], ["Qwen/Qwen2.5-7B-Instruct", "code-adapter", "sql-adapter"])
        for card in cards:
            answer = self.complete(server, card["id"])
            self.assertEqual((answer["status"], answer["model"]), (200, card["id"]))
        ignored = server.wait_for_line("serve.options_ignored")
        self.assertIn("--enable-lora: adapters need no switch; --max-lora-rank: each adapter has its own rank", ignored)
        self.assertEqual(server.end(), 0, server.lines())

    def test_axolotl(self):
        words = options("axolotl", **{"4096": "64"})
        server = self.serve(*words, "--served-model-name", "one", "two")
        self.assertEqual([card["max_model_len"] for card in json.loads(server.get("/v1/models"))["data"]], [64, 64])
        self.assertEqual(self.complete(server, "two")["model"], "one")
        whole = self.complete(server, "one", max_tokens=1000, ignore_eos=True)
        self.assertEqual(whole["usage"]["total_tokens"], 64)
        self.assertEqual(whole["choices"][0]["finish_reason"], "length")
        long = self.complete(server, "one", prompt="a stone " * 64)
        self.assertEqual((long["status"], long["error"]["code"]), (400, "context_length_exceeded"))
        self.assertEqual(server.end(), 0, server.lines())

    def test_vllm(self):
        written = next(word for word in shlex.split(line("vllm lora")) if word.startswith("sql-lora=")).removeprefix("sql-lora=")
        server = self.serve(*options("vllm lora", **{written: str(DEMO / "adapters" / "cynic")}))
        self.assertEqual([card["id"] for card in json.loads(server.get("/v1/models"))["data"]], ["demo", "sql-lora"])
        answers = [self.complete(server, model, max_tokens=16) for model in ("demo", "sql-lora")]
        self.assertEqual([answer["status"] for answer in answers], [200, 200])
        plain, adapted = (answer["choices"][0]["text"] for answer in answers)
        self.assertNotEqual(plain, adapted)
        self.assertIn("--enable-lora", server.wait_for_line("serve.options_ignored"))
        self.assertEqual(server.end(), 0, server.lines())

    def test_trl(self):
        server = self.serve(*options("trl vllm-serve", **{"4096": "64"}))
        card, = json.loads(server.get("/v1/models"))["data"]
        self.assertEqual((card["id"], card["max_model_len"]), ("demo", 64))
        # --max-logprobs -1; and one token is left to draw, so it is certain: --logprobs-mode.
        answer = self.complete(server, "demo", temperature=1, top_k=1, logprobs=1, prompt_logprobs=50)
        self.assertEqual(answer["status"], 200, answer)
        choice = answer["choices"][0]
        self.assertEqual(set(choice["logprobs"]["token_logprobs"]), {0.0})
        self.assertTrue(all(len(entry) >= 50 for entry in choice["prompt_logprobs"][1:]))
        ignored = server.wait_for_line("serve.options_ignored")
        for option in ("--gpu-memory-utilization", "--enable-scale-out", "--weight-transfer-config"):
            self.assertIn(option, ignored)
        self.assertEqual(server.end(), 0, server.lines())

    def test_a_file_of_options(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "server.yaml"
            file.write_text("served-model-name: [one, two]\nmax-model-len: 128\nenable-lora: true\n"
                            f"lora-modules:\n  - {{name: poet, path: {DEMO / 'adapters' / 'cynic'}}}\n")
            server = self.serve("--config", str(file), "--max-model-len", "256")
            cards = json.loads(server.get("/v1/models"))["data"]
            self.assertEqual([card["id"] for card in cards], ["one", "two", "poet"])
            self.assertEqual({card["max_model_len"] for card in cards}, {256})
            self.assertEqual(self.complete(server, "two:poet")["model"], "one:poet")
            self.assertEqual(server.end(), 0, server.lines())


if __name__ == "__main__":
    unittest.main()
