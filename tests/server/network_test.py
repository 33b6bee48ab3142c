"""How `motley serve` meets other machines and proxies: network_test.py MOTLEY GOLDEN"""

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

import tiny_model
from server_process import SMALL, ServerProcess, UnixConnection

MOTLEY, GOLDEN = Path(sys.argv.pop(1)), Path(sys.argv.pop(1))


def server_model(models: str) -> str:
    return json.loads(models)["data"][0]["id"]


class Network(tiny_model.Case):
    golden = GOLDEN

    def start(self, *options: str) -> ServerProcess:
        server = ServerProcess(MOTLEY, self.folder, *SMALL, *options)
        self.addCleanup(server.close)
        return server

    def log_of(self, *options: str) -> str:
        """All that a server with these options logs, from its start to its end."""
        server = self.start(*options)
        self.assertEqual(server.end(), 0)
        return server.lines()

    def test_a_server_without_keys_warns_where_others_can_connect(self):
        keys = self.folder / "keys.txt"
        keys.write_text("secret\n")
        warning = r"warning serve\.open_to_network host=0\.0\.0\.0 effect=.* advice=.*--api-key-file"
        self.assertRegex(self.log_of("--host", "0.0.0.0"), warning)
        self.assertNotIn("serve.open_to_network", self.log_of())
        self.assertNotIn("serve.open_to_network", self.log_of("--host", "0.0.0.0", "--api-key-file", str(keys)))

    def test_a_proxy_names_the_client_and_the_server(self):
        server = self.start("--trusted-proxies", "10.0.0.0/8,127.0.0.1", "--trusted-proxies", "::1")
        forwarded = {"Host": "llm.example", "X-Forwarded-For": "203.0.113.9, 10.1.1.1"}
        status, text, _ = server.ask("/v1/models", headers=forwarded)
        self.assertEqual(status, 200, text)
        self.assertEqual(server.end(), 0)
        self.assertIn(" client=203.0.113.9 ", server.lines())

    def refusal(self, *options: str) -> str:
        """What a server says that doesn't start."""
        ended = subprocess.run([MOTLEY, "serve", self.folder, *options], capture_output=True, text=True, timeout=60)
        self.assertIn(ended.returncode, (1, 2), ended.stderr)
        return ended.stderr

    def test_a_unix_socket_serves_its_machine_alone(self):
        path = self.folder / "socket"
        server = self.start("--listen", f"unix:{path}")
        self.assertEqual(server.url, f"unix:{path}")
        self.assertTrue(path.is_socket())
        status, text, _ = server.ask("/v1/models", headers={"Host": "any.name"})
        self.assertEqual(status, 200, text)
        asked = {"model": server_model(text), "prompt": [1, 2], "max_tokens": 3, "temperature": 0}
        status, whole = server.post("/v1/completions", asked)
        self.assertEqual(status, 200, whole)
        status, stream = server.post("/v1/completions", asked | {"stream": True})
        self.assertEqual(status, 200, stream)
        self.assertTrue(stream.rstrip().endswith("data: [DONE]"), stream)
        self.assertIn("another process listens there", self.refusal("--listen", str(path)))
        self.assertEqual(server.end(), 0)
        self.assertFalse(path.exists())
        self.assertRegex(server.lines(), rf"peer=unix:user:{os.getuid()}:pid:{os.getpid()} client=user:{os.getuid()} ")

    def test_the_programs_own_clients_reach_a_unix_socket(self):
        server = self.start("--listen", f"unix:{self.folder / 'asked'}")
        for words in (("ask", server.url, "hello", "--max-tokens", "3"),
                      ("bench", "--url", server.url, "--requests", "4", "--concurrency", "2",
                       "--prompt-tokens", "4", "--output-tokens", "3", "--vocabulary", "130")):
            ended = subprocess.run([MOTLEY, *words], capture_output=True, text=True, timeout=60)
            self.assertEqual(ended.returncode, 0, ended.stderr + ended.stdout)
        self.assertEqual(server.end(), 0)
        self.assertIn(" path=/v1/chat/completions status=200 ", server.lines())

    def test_a_unix_socket_and_a_port_serve_together(self):
        path = self.folder / "both"
        server = self.start("--port", "0", "--listen", f"unix:{path}")
        self.assertIsNotNone(server.port)
        over_port = server.get("/v1/models")
        connection = UnixConnection(str(path))
        connection.request("GET", "/v1/models")
        self.assertEqual(connection.getresponse().read().decode(), over_port)
        connection.close()
        self.assertEqual(server.end(), 0)
        self.assertFalse(path.exists())

    def test_a_place_that_is_no_socket_is_refused(self):
        text = self.folder / "text"
        text.write_text("kept")
        self.assertIn("a file that is no socket has this name", self.refusal("--listen", f"unix:{text}"))
        self.assertEqual(text.read_text(), "kept")
        for wrong in "8000", "unix://run/socket":
            self.assertIn("write unix:PATH", self.refusal("--listen", wrong))

    def test_what_is_no_network_is_refused(self):
        self.assertIn("no address or network: '10.0.0.0/99' (--trusted-proxies): write them like",
                      self.refusal("--trusted-proxies", "10.0.0.0/99"))


if __name__ == "__main__":
    unittest.main()
