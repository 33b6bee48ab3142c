"""What attacks are made of: a client that counts what it gets, on sockets as raw as it likes."""

import http.client
import json
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from server_process import LOOK_SECONDS, WAIT_SECONDS

ADDRESS = "127.0.0.1"
ANSWER_SECONDS = 180  # for one of an attack's many answers, which wait for each other


@dataclass
class Answer:
    status: int | str  # 0: none came
    headers: dict
    body: bytes

    def text(self) -> str:
        return self.body.decode(errors="replace")

    def json(self):
        try:
            return json.loads(self.body)
        except ValueError:
            return {}


class Attacker:
    """Lives in a process of its own; its counts and complaints go to the suite at the end."""

    def __init__(self, server, headers: dict):
        settings = server.settings
        self.port, self.pid, self.folder = server.port, server.pid, server.folder
        self.log_reader, self.settings = server.log_reader, settings
        self.headers, self.patience = headers, settings.patience(40) if settings.timed else ANSWER_SECONDS
        self.lock, self.statuses, self.failures, self.notes = threading.Lock(), Counter(), [], []

    def within(self, seconds: float) -> float:
        """A limit of seconds where times are judged, else the bound of a wait."""
        return self.settings.patience(seconds) if self.settings.timed else WAIT_SECONDS

    def pause(self, seconds: float, shorter: float) -> float:
        """How long the attack lasts, which nothing is judged by: less where times are not judged."""
        return seconds if self.settings.timed else shorter

    def count(self, status) -> None:
        with self.lock:
            self.statuses[status] += 1

    def fail(self, what: str) -> None:
        with self.lock:
            if len(self.failures) < 8:
                self.failures.append(what)

    def expect(self, holds: bool, what: str) -> None:
        if not holds:
            self.fail(what)

    def note(self, what: str) -> None:
        with self.lock:
            if what not in self.notes:
                self.notes.append(what)

    def few(self, usual: int) -> int:
        """A number of requests, less where each takes longer."""
        if self.settings.sanitized:
            return max(2, usual // 8)
        return max(2, usual // 2) if self.settings.quick else usual

    # Whole requests.

    def ask(self, method: str, path: str, body: bytes | None = None, headers: dict | None = None,
            seconds: float | None = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port,
                                                timeout=seconds or self.patience,
                                                source_address=(ADDRESS, 0))
        try:
            connection.request(method, path, body, self.headers if headers is None else headers)
            response = connection.getresponse()
            answer = Answer(response.status, dict(response.getheaders()), response.read())
        except TimeoutError:
            # One that says how long it waits leaves then; one that does not is owed an answer.
            answer = Answer("left" if seconds else 0, {}, b"no answer in time")
        except (OSError, http.client.HTTPException) as error:
            answer = Answer(0, {}, f"{type(error).__name__}: {error}".encode())
        finally:
            connection.close()
        self.count(answer.status)
        return answer

    def post(self, path: str, body, seconds: float | None = None) -> Answer:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.ask("POST", path, text, seconds=seconds)

    def complete(self, seconds: float | None = None, **fields) -> Answer:
        """A completion that ends early, with these fields on top."""
        body = {"model": "base", "prompt": "word", "max_tokens": 4, "temperature": 0} | fields
        return self.post("/v1/completions", body, seconds)

    def chat(self, seconds: float | None = None, **fields) -> Answer:
        body = {"model": "base", "messages": [{"role": "user", "content": "word"}], "max_tokens": 4,
                "temperature": 0} | fields
        return self.post("/v1/chat/completions", body, seconds)

    def load(self, name: str, path: str, **fields) -> Answer:
        return self.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": path} | fields)

    def unload(self, name: str) -> Answer:
        return self.post("/v1/unload_lora_adapter", {"lora_name": name})

    def all_at_once(self, calls: list, threads: int = 16) -> list:
        with ThreadPoolExecutor(threads) as pool:
            return [each.result() for each in [pool.submit(call) for call in calls]]

    # Bytes.

    def connect(self, seconds: float | None = None) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=seconds or self.patience,
                                        source_address=(ADDRESS, 0))

    def exchange(self, sent: bytes, seconds: float = 5) -> bytes:
        """What comes back until the server closes or an answer is whole; with --timed until it says nothing for that long."""
        came = b""
        with self.connect(self.within(seconds)) as connection:
            try:
                connection.sendall(sent)
                while piece := connection.recv(1 << 16):
                    came += piece
                    if self.is_whole(came):
                        connection.settimeout(0.3)  # whether a second answer follows
            except OSError:
                pass
        return came

    @staticmethod
    def is_whole(came: bytes) -> bool:
        head, gap, body = came.partition(b"\r\n\r\n")
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                return len(body) >= int(line.split(b":")[1])
        return bool(gap) and body.endswith(b"0\r\n\r\n")

    @staticmethod
    def statuses_of(came: bytes) -> list[int]:
        """Those of all answers in these bytes."""
        parts = came.split(b"HTTP/1.")[1:]
        return [int(part[2:5]) for part in parts if part[2:5].isdigit()]

    def head(self, path: str, length: int, more: str = "", method: str = "POST") -> bytes:
        fields = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        return (f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
                f"Content-Length: {length}\r\n{fields}{more}\r\n").encode()

    def completion_bytes(self, **fields) -> bytes:
        body = json.dumps({"model": "base", "prompt": "word", "max_tokens": 4} | fields).encode()
        return self.head("/v1/completions", len(body)) + body

    # Looking.

    def metrics(self) -> dict[str, float]:
        """Without the client's count of statuses."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.patience,
                                                source_address=("127.0.0.3", 0))
        connection.request("GET", "/metrics", headers=self.headers)
        text = connection.getresponse().read().decode()
        connection.close()
        found = {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                found[name] = float(value)
        return found

    def health(self) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.patience,
                                                source_address=("127.0.0.3", 0))
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def wait_for(self, holds, seconds: float = WAIT_SECONDS) -> bool:
        end = time.monotonic() + self.within(seconds)
        while time.monotonic() < end:
            if holds():
                return True
            time.sleep(LOOK_SECONDS)
        return False

    def adapter(self, name: str) -> Path:
        return self.folder / "adapters" / name
