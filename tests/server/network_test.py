"""How `motley serve` meets other machines and proxies: network_test.py MOTLEY GOLDEN"""

import subprocess
import sys
import unittest
from pathlib import Path

import tiny_model
from server_process import SMALL, ServerProcess

MOTLEY, GOLDEN = Path(sys.argv.pop(1)), Path(sys.argv.pop(1))


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

    def test_what_is_no_network_is_refused(self):
        call = [MOTLEY, "serve", self.folder, "--trusted-proxies", "10.0.0.0/99"]
        ended = subprocess.run(call, capture_output=True, text=True, timeout=60)
        self.assertEqual(ended.returncode, 2, ended.stderr)
        self.assertIn("no address or network: '10.0.0.0/99' (--trusted-proxies): write them like", ended.stderr)


if __name__ == "__main__":
    unittest.main()
