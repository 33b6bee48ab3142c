"""How `motley serve` ends: drain_test.py MOTLEY GOLDEN"""

import json
import signal
import socket
import sys
import unittest
from pathlib import Path

import tiny_model
from server_process import SMALL, WAIT_SECONDS, ServerProcess, until

MOTLEY, GOLDEN = Path(sys.argv.pop(1)), Path(sys.argv.pop(1))
# No token ends such an answer, so that only what the server does can.
ENDLESS = {"prompt": "the rain in", "max_tokens": 200, "n": 64, "ignore_eos": True, "stream": True,
           "logprobs": 20}
NEVER = "300"  # seconds; longer than any wait of a test


class Server(ServerProcess):
    def connect(self, sent: bytes = b"") -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_SECONDS)
        connection.sendall(sent)
        return connection

    def send(self, body: dict, *, bytes_left_out: int = 0) -> socket.socket:
        text = json.dumps(body).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(text)}\r\n\r\n"
        return self.connect(head.encode() + text[:len(text) - bytes_left_out])

    def wait_until_heard(self, connections: int) -> None:
        """Returns when the server has accepted that many connections, besides the one that asks."""
        def accepted() -> float:
            return self.metrics()["motley_http_connections"]

        until(f"{connections} connections", lambda: accepted() == connections + 1, accepted)


class Ending(tiny_model.Case):
    golden = GOLDEN

    def start(self, *options: str) -> Server:
        server = Server(MOTLEY, self.folder, *SMALL, *options)
        self.addCleanup(server.close)
        return server

    def test_half_sent_requests_do_not_hold_it(self):
        """Nothing but the rule for requests that are half sent can end these before the bound of the wait."""
        for number in (signal.SIGTERM, signal.SIGINT):
            server = self.start("--drain-timeout", NEVER, "--client-timeout", NEVER)
            held = [server.connect(b"POST /v1/comp"), server.send(ENDLESS, bytes_left_out=3), server.connect()]
            server.wait_until_heard(len(held))
            self.assertEqual(server.end(number), 0, server.lines())
            self.assertNotIn("serve.cutting_off", server.lines())
            for connection in held:
                connection.close()

    def test_answers_that_nobody_takes_have_until_the_limit(self):
        server = self.start("--drain-timeout", "1", "--client-timeout", NEVER)
        with server.send(ENDLESS) as reader:
            self.assertIn(b"200 OK", reader.recv(4096))
            self.assertEqual(server.end(), 0, server.lines())
        self.assertRegex(server.lines(), r"serve\.cutting_off connections=1 .*--drain-timeout is over")

    def test_a_second_signal_cuts_off_at_once(self):
        server = self.start("--drain-timeout", NEVER, "--client-timeout", NEVER)
        with server.send(ENDLESS) as reader:
            self.assertIn(b"200 OK", reader.recv(4096))
            self.assertEqual(server.end(signal.SIGTERM, signal.SIGTERM), 0, server.lines())
        self.assertRegex(server.lines(), r"serve\.cutting_off .*a second signal")


if __name__ == "__main__":
    unittest.main()
