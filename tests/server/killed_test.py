"""A server that is killed while adapters are pushed: killed_test.py MOTLEY GOLDEN

Nothing of a push is left on its disk, and the next server has the adapters of its command line, with their answers.
"""

import http.client
import json
import sys
import tempfile
import threading
import unittest
from pathlib import Path

import tiny_model
from server_process import SMALL, ServerProcess, until
from soak_trainer import pushed_body

MOTLEY, GOLDEN = Path(sys.argv.pop(1)), Path(sys.argv.pop(1))
ADAPTERS = ("attention", "experts")
ROUNDS = 4


class Killed(tiny_model.Case):
    golden = GOLDEN

    def setUp(self):
        disk = tempfile.TemporaryDirectory()
        self.addCleanup(disk.cleanup)
        self.disk = Path(disk.name)

    def start(self, *options: str) -> ServerProcess:
        named = [word for name in ADAPTERS for word in ("--adapter", f"{name}={self.folder}/adapters/{name}")]
        server = ServerProcess(MOTLEY, self.folder, *SMALL, *named, "--allow-adapter-loading", "--push-dir", str(self.disk),
                               *options)
        self.addCleanup(server.close)
        return server

    def ask(self, server: ServerProcess, name: str) -> dict:
        status, text = server.post("/v1/completions", {
            "model": name, "prompt": "the rain in spain", "max_tokens": 8, "temperature": 0, "logprobs": 1})
        self.assertEqual(status, 200, text)
        answer = json.loads(text)
        return {"version": answer["adapter_version"], "choices": answer["choices"]}

    def put(self, server: ServerProcess, name: str, body: bytes, version: str) -> int:
        """The status; 0 where the server is gone."""
        connection = server.http_connection()
        try:
            connection.request("PUT", f"/v1/adapters/{name}?version={version}", body)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def kill_in_the_middle(self, server: ServerProcess, body: bytes) -> None:
        """While whole pushes come and go, and after half of another one has come."""
        ended, statuses = threading.Event(), []

        def push():
            while not ended.is_set():
                statuses.append(self.put(server, "attention", body, f"pushed-{len(statuses)}"))

        pusher = threading.Thread(target=push)
        pusher.start()
        half = server.http_connection()
        half.putrequest("PUT", "/v1/adapters/half")
        half.putheader("Content-Length", str(len(body)))
        half.endheaders(body[:len(body) // 2])
        until("pushes", lambda: statuses.count(200) >= 3, lambda: statuses)
        self.assertTrue(self.ask(server, "attention")["version"].startswith("pushed-"))
        server.process.kill()
        server.process.wait()
        ended.set()
        pusher.join()
        half.close()
        self.assertLessEqual(set(statuses), {0, 200})

    def check(self, *options: str) -> None:
        body = pushed_body(self.folder / "adapters" / "experts")
        server = self.start(*options)
        wanted = {name: self.ask(server, name) for name in ADAPTERS}
        for _ in range(ROUNDS):
            self.kill_in_the_middle(server, body)
            self.assertEqual(list(self.disk.iterdir()), [])
            server = self.start(*options)
            self.assertEqual({name: self.ask(server, name) for name in ADAPTERS}, wanted)
        self.assertEqual(server.end(), 0, server.lines())

    def test_one_engine(self):
        self.check()

    def test_replicas(self):
        self.check("--dp", "2")

    def test_ranks(self):
        self.check("--tp", "2")


if __name__ == "__main__":
    unittest.main()
