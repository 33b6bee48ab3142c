"""How `motley serve` meets other machines and proxies: network_test.py MOTLEY GOLDEN"""

import socket
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

    def test_a_server_without_keys_warns_where_others_can_connect(self):
        keys = self.folder / "keys.txt"
        keys.write_text("secret\n")
        warns = self.start("--host", "0.0.0.0").lines()
        self.assertRegex(warns, r"warning serve\.open_to_network host=0\.0\.0\.0 effect=.* advice=.*--api-key-file")
        self.assertNotIn("serve.open_to_network", self.start().lines())
        self.assertNotIn("serve.open_to_network", self.start("--host", "0.0.0.0", "--api-key-file", str(keys)).lines())

    def test_a_proxy_names_the_client_and_the_server(self):
        server = self.start("--trusted-proxies", "10.0.0.0/8,127.0.0.1", "--trusted-proxies", "::1")
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as proxy:
            proxy.sendall(b"GET /v1/models HTTP/1.1\r\nHost: llm.example\r\nConnection: close\r\n"
                          b"X-Forwarded-For: 203.0.113.9, 10.1.1.1\r\n\r\n")
            answer = b""
            while piece := proxy.recv(4096):
                answer += piece
        self.assertIn(b" 200 OK\r\n", answer)
        server.process.terminate()
        server.process.wait(60)
        self.assertIn(" client=203.0.113.9 ", server.lines())

    def test_what_is_no_network_is_refused(self):
        call = [MOTLEY, "serve", self.folder, "--trusted-proxies", "10.0.0.0/99"]
        ended = subprocess.run(call, capture_output=True, text=True, timeout=60)
        self.assertEqual(ended.returncode, 2, ended.stderr)
        self.assertIn("no address or network: '10.0.0.0/99' (--trusted-proxies): write them like", ended.stderr)


if __name__ == "__main__":
    unittest.main()
