"""`motley serve` over the demo's model, for clients that know its address and a key; and the code of docs/guide/clients.md.

A test of a client is run as NAME_test.py MOTLEY REPOSITORY [unittest's own arguments].
"""

import json
import os
import re
import sys
import tempfile
import unittest
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "server"))

from server_process import ServerProcess  # noqa: E402

KEY = "secret"  # as the page has it
PAGE_URL = "http://127.0.0.1:8000"
PAGE_MODEL = "models/demo"
ADAPTERS = ("scripture", "jargon", "cynic", "fortune", "record")
POSITIONS = 16384  # the demo's 1024 are fewer than some clients' own prompts

# No client asks for anything beyond this machine.
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True",
               "DO_NOT_TRACK": "1", "HAYSTACK_TELEMETRY_ENABLED": "False", "OPENAI_AGENTS_DISABLE_TRACING": "1",
               "NO_PROXY": "127.0.0.1,localhost", "TOKENIZERS_PARALLELISM": "false"}

# What tools and forms are asked for: small, and every string is bounded.
CITY_SCHEMA = {"type": "object", "additionalProperties": False, "required": ["city", "days"],
               "properties": {"city": {"type": "string", "maxLength": 12},
                              "days": {"type": "integer", "minimum": 1, "maximum": 14}}}
TOOL = {"type": "function", "function": {
    "name": "forecast", "description": "the weather of the next days", "parameters": CITY_SCHEMA}}


class Server(ServerProcess):
    """In float32 on the CPU."""

    def __init__(self, motley: Path, repository: Path, scratch: Path, *options: str, key: str | None = KEY):
        self.model = scratch / "demo"
        self.model.mkdir()
        for path in (repository / "models/demo").iterdir():
            (self.model / path.name).symlink_to(path)
        (self.model / "config.json").unlink()
        config = json.loads((repository / "models/demo/config.json").read_text())
        (self.model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": POSITIONS}))
        if key is not None:
            (scratch / "keys.txt").write_text(key + "\n")
            options = ("--api-key-file", scratch / "keys.txt", *options)
        adapters = [word for name in ADAPTERS for word in ("--adapter", f"{name}={self.model}/adapters/{name}")]
        super().__init__(motley, self.model, "--device", "cpu", "--compute", "f32", "--kv-memory", "256M",
                         "--adapter-memory", "64M", *adapters, *options)

    def get(self, path: str) -> str:
        request = urllib.request.Request(self.url + path, headers={"authorization": f"Bearer {KEY}"})
        with urllib.request.urlopen(request) as response:
            return response.read().decode()

    def post(self, path: str, body: dict) -> dict:
        return self.post_with_headers(path, body)[0]

    def post_with_headers(self, path: str, body: dict) -> tuple:
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(),
                                         {"authorization": f"Bearer {KEY}", "content-type": "application/json"})
        with urllib.request.urlopen(request) as response:
            return json.load(response), response.headers


class ClientTest(unittest.TestCase):
    """One server for all tests of a class; `options` go to it."""

    options: tuple[str, ...] = ()
    key: str | None = KEY  # None: the server takes any client

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.scratch = Path(cls.folder.name)
        cls.server = Server(MOTLEY, REPOSITORY, cls.scratch, *cls.options, key=cls.key)
        cls.url = cls.server.url
        cls.v1 = cls.url + "/v1"

    @classmethod
    def tearDownClass(cls):
        status = cls.server.end()
        if status != 0:
            print(cls.server.last_lines(40), file=sys.stderr)
        cls.server.close()
        cls.folder.cleanup()
        assert status == 0, f"the server ended with status {status}"

    def blocks(self, section: str, language: str) -> list[str]:
        """The code of a section of the page, with this server's address in it and this model's folder."""
        page = (REPOSITORY / "docs/guide/clients.md").read_text()
        text = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
        self.assertIsNotNone(text, f"docs/guide/clients.md has no section {section!r}")
        found = re.findall(rf"^```{language}\n(.*?)^```$", text[1], re.DOTALL | re.MULTILINE)
        self.assertTrue(found, f"docs/guide/clients.md has no {language} under {section!r}")
        return [block.replace(PAGE_URL, self.url).replace(PAGE_MODEL, str(self.server.model)) for block in found]

    def run_page(self, section: str) -> dict:
        """Runs the section's Python, one block after the other, and gives back what it defined."""
        names: dict = {"__name__": "page"}
        for block in self.blocks(section, "python"):
            exec(compile(block, f"clients.md, {section}", "exec"), names)
        return names

    def chat(self, **fields) -> str:
        """What the server says without the client."""
        body = {"model": "demo", "temperature": 0} | fields
        return self.server.post("/v1/chat/completions", body)["choices"][0]["message"]["content"]

    def assert_forecast(self, arguments: dict):
        self.assertEqual(set(arguments), {"city", "days"})
        self.assertIsInstance(arguments["city"], str)
        self.assertLessEqual(len(arguments["city"]), 12)
        self.assertIn(arguments["days"], range(1, 15))

    def assert_streamed(self, pieces: list[str], whole: str):
        """Increments, none of them the whole, and together the whole."""
        pieces = [piece for piece in pieces if piece]
        self.assertGreater(len(pieces), 3)
        self.assertEqual("".join(pieces), whole)


def main():
    global MOTLEY, REPOSITORY
    MOTLEY, REPOSITORY = (Path(sys.argv.pop(1)).resolve() for _ in range(2))
    unittest.main(module="__main__")
