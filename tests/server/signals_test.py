"""Signals and limits of `motley serve`: signals_test.py MOTLEY GOLDEN"""

import http.client
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

import tiny_model
from server_process import SMALL, ServerProcess

MOTLEY, GOLDEN = Path(sys.argv.pop(1)), Path(sys.argv.pop(1))
BOUND = 60  # seconds that an event may take
# A user of its own for a limit of processes, which does not bind root.
OTHER_USER = 54321
MOST_THREADS = (*range(16), 32, 64, 256)  # up to more than a server starts, with those that read weights


def limited(number: int, most: int, user: int | None = None):
    def limit():
        if user is not None:
            os.setgid(user)
            os.setuid(user)
        resource.setrlimit(number, (most, most))
    return limit


class Signals(tiny_model.Case):
    golden = GOLDEN

    def start(self, *options: str) -> ServerProcess:
        server = ServerProcess(MOTLEY, self.folder, *SMALL, *options)
        self.addCleanup(server.close)
        return server

    def status(self, server: ServerProcess, key: str = "") -> int:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=BOUND)
        connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"} if key else {})
        status = connection.getresponse().status
        connection.close()
        return status

    def wait_for(self, server: ServerProcess, words: str, count: int = 1) -> None:
        end = time.monotonic() + BOUND
        while server.lines().count(words) < count:
            self.assertIsNone(server.process.poll(), f"the server has ended before {words!r}: {server.lines()}")
            self.assertLess(time.monotonic(), end, f"no {words!r} in {server.lines()}")

    def test_signals_that_ask_for_nothing_change_nothing(self):
        server = self.start()
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGPIPE, signal.SIGXFSZ):
            server.process.send_signal(number)
        server.process.send_signal(signal.SIGHUP)
        self.wait_for(server, "serve.hangup_ignored")
        self.assertEqual(self.status(server), 200)
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(BOUND), 0, server.lines())

    def test_the_end_of_its_input_ends_it_where_that_is_asked_for(self):
        for options, ends in ((("--end-with-stdin",), True), ((), False)):
            server = ServerProcess(MOTLEY, self.folder, *SMALL, *options, stdin=subprocess.PIPE)
            self.addCleanup(server.close)
            server.process.stdin.write("dropped")
            server.process.stdin.flush()
            self.assertEqual(self.status(server), 200)
            server.process.stdin.close()
            if not ends:
                self.assertEqual(self.status(server), 200)
                server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.wait("the end of its input"), 0, server.lines())

    def test_the_end_of_its_input_ends_a_start(self):
        server = subprocess.run([MOTLEY, "serve", self.folder, "--port", "0", *SMALL, "--end-with-stdin"],
                                stdin=subprocess.DEVNULL, capture_output=True, timeout=BOUND, check=False)
        self.assertIn(server.returncode, (0, 1), server.stderr)  # 1: before the model was loaded

    def test_a_hangup_reads_the_keys_again(self):
        file = Path(self.scratch.name) / "keys"
        file.write_text("first\nsecond\n")
        server = self.start("--api-key-file", str(file))
        self.assertEqual([self.status(server, key) for key in ("first", "third", "")], [200, 401, 401])
        file.write_text("second\nthird\nfourth\n")
        self.assertEqual(self.status(server, "first"), 200, "the file is only read when it is asked for")
        server.process.send_signal(signal.SIGHUP)
        self.wait_for(server, "serve.keys_read keys=3")
        self.assertEqual([self.status(server, key) for key in ("first", "second", "third", "")],
                         [401, 200, 200, 401])
        for number, text in enumerate(("# none\n", None)):
            if text is None:
                file.unlink()
            else:
                file.write_text(text)
            server.process.send_signal(signal.SIGHUP)
            self.wait_for(server, "serve.keys_kept", number + 1)
            self.assertEqual([self.status(server, key) for key in ("first", "third")], [401, 200])
        self.assertNotIn("third", server.lines())

    def test_a_limit_of_file_sizes_ends_no_server(self):
        log = Path(self.scratch.name) / "limited.log"
        with log.open("w") as errors:
            server = subprocess.Popen(
                [MOTLEY, "serve", self.folder, "--port", "0", *SMALL], stdout=subprocess.PIPE, stderr=errors,
                text=True, preexec_fn=limited(resource.RLIMIT_FSIZE, 1024))
        self.addCleanup(lambda: (server.kill(), server.wait(), server.stdout.close()))
        self.assertTrue(select.select([server.stdout], [], [], BOUND)[0], "no address")
        port = int(server.stdout.readline().rsplit(":", 1)[1])
        for form in ({}, {"guided_regex": "a+"}):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=BOUND)
            connection.request("POST", "/v1/completions", json.dumps({"prompt": "the", "max_tokens": 2, **form}))
            answer = connection.getresponse()
            said = answer.read().decode()
            connection.close()
            if not form:
                self.assertEqual(answer.status, 200, said)
            else:
                self.assertEqual(answer.status, 503, said)
                self.assertIn("ulimit -f", said)

    def test_a_limit_of_threads_ends_in_words(self):
        """At whichever thread of a start the limit is met; with enough the server starts."""
        user = OTHER_USER if os.geteuid() == 0 else None
        Path(self.scratch.name).chmod(0o755)
        program = Path(self.scratch.name) / "motley"  # where that user may read it
        shutil.copy(MOTLEY, program)
        for most in MOST_THREADS:
            log = Path(self.scratch.name) / f"threads-{most}.log"
            with log.open("w") as errors:
                server = subprocess.Popen([program, "serve", self.folder, "--port", "0", *SMALL], stdout=subprocess.PIPE,
                                          stderr=errors, text=True, preexec_fn=limited(resource.RLIMIT_NPROC, most, user))
            self.addCleanup(lambda server=server: (server.kill(), server.wait(), server.stdout.close()))
            self.assertTrue(select.select([server.stdout], [], [], BOUND)[0], log.read_text())
            if server.stdout.readline():
                self.assertGreater(most, 5)
                server.send_signal(signal.SIGTERM)
                self.assertEqual(server.wait(BOUND), 0, log.read_text())
                return
            self.assertEqual(server.wait(BOUND), 1, log.read_text())
            # A leak sanitizer, which needs a thread at the end, has the last words.
            last = [line for line in log.read_text().splitlines() if line.startswith("motley: ")][-1]
            self.assertRegex(last, r"^motley: no thread can be started .*ulimit -u", log.read_text())
        self.fail(f"no start with {most} threads: {log.read_text()}")


if __name__ == "__main__":
    unittest.main()
