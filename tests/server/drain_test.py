"""How `motley serve` ends: drain_test.py MOTLEY GOLDEN"""

import json
import signal
import socket
import sys
import time
import unittest
from pathlib import Path

import tiny_model
from server_process import SMALL, ServerProcess

MOTLEY, GOLDEN = Path(sys.argv.pop(1)), Path(sys.argv.pop(1))
# No token ends such an answer, so that only what the server does can.
ENDLESS = {"prompt": "the rain in", "max_tokens": 200, "n": 64, "ignore_eos": True, "stream": True,
           "logprobs": 20}


class Server(ServerProcess):
    def connect(self, sent: bytes = b"") -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        connection.sendall(sent)
        return connection

    def post(self, body: dict, *, bytes_left_out: int = 0) -> socket.socket:
        text = json.dumps(body).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(text)}\r\n\r\n"
        return self.connect(head.encode() + text[:len(text) - bytes_left_out])

    def is_heard(self) -> None:
        """Returns when a request behind everything that was sent before has been answered."""
        with self.connect(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n") as asks:
            while asks.recv(4096):
                pass

    def end(self, *numbers: int) -> tuple[int, float]:
        """The exit status after these signals, and the seconds until then."""
        began = time.monotonic()
        for number in numbers:
            self.process.send_signal(number)
            self.wait_for_line("serve.ending")  # equal signals that both wait are one
        status = self.process.wait(timeout=60)
        return status, time.monotonic() - began

    def wait_for_line(self, words: str) -> None:
        while words not in self.lines():
            assert self.process.poll() is None or words in self.lines(), self.lines()


class Ending(tiny_model.Case):
    golden = GOLDEN

    def start(self, *options: str) -> Server:
        server = Server(MOTLEY, self.folder, *SMALL, *options)
        self.addCleanup(server.close)
        return server

    def test_half_sent_requests_do_not_hold_it(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            server = self.start()
            held = [server.connect(b"POST /v1/comp"), server.post(ENDLESS, bytes_left_out=3), server.connect()]
            server.is_heard()
            status, seconds = server.end(number)
            self.assertEqual(status, 0, server.lines())
            self.assertLess(seconds, 4)
            self.assertNotIn("serve.cutting_off", server.lines())
            for connection in held:
                connection.close()

    def test_answers_that_nobody_takes_have_until_the_limit(self):
        server = self.start("--drain-timeout", "1", "--client-timeout", "300")
        with server.post(ENDLESS) as reader:
            self.assertIn(b"200 OK", reader.recv(4096))
            status, seconds = server.end(signal.SIGTERM)
        self.assertEqual(status, 0, server.lines())
        self.assertGreaterEqual(seconds, 1)
        self.assertRegex(server.lines(), r"serve\.cutting_off connections=1 ")

    def test_a_second_signal_cuts_off_at_once(self):
        server = self.start("--drain-timeout", "300", "--client-timeout", "300")
        with server.post(ENDLESS) as reader:
            self.assertIn(b"200 OK", reader.recv(4096))
            status, seconds = server.end(signal.SIGTERM, signal.SIGTERM)
        self.assertEqual(status, 0, server.lines())
        self.assertLess(seconds, 60)
        self.assertIn("a second signal", server.lines())


if __name__ == "__main__":
    unittest.main()
