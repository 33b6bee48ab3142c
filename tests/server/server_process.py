"""`motley serve` as a process of a test: its start, what it logs, its end.

Each wait ends after WAIT_SECONDS with an error that names what was waited for. No test judges by the clock: a bound
this long only turns a hang into words.
"""

import atexit
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

WAIT_SECONDS = 60
LOOK_SECONDS = 0.02  # between two looks at what no event announces

# Of a small golden, whose answers are the same wherever they are computed.
SMALL = ("--device", "cpu", "--compute", "f32", "--kv-memory", "16M", "--adapter-memory", "16M")


def until(what: str, holds, describe=lambda: ""):
    """The first value of `holds()` that is true. `what` and `describe()` go into the error where none is in time."""
    end = time.monotonic() + WAIT_SECONDS
    while not (value := holds()):
        if time.monotonic() > end:
            raise AssertionError(f"waited {WAIT_SECONDS} s for {what}: {describe()}")
        time.sleep(LOOK_SECONDS)
    return value


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, seconds: float = WAIT_SECONDS):
        super().__init__("localhost", timeout=seconds)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class ServerProcess:
    """A server on a port of the kernel's choice, or on a Unix socket. What it logs goes to a file, unless `stderr` is
    given.

    `before` runs in the new process before the program.
    """

    def __init__(self, motley: Path, folder: Path, *options, stderr=None, before=None, **popen):
        network = () if "--listen" in options else ("--port", "0")
        self.log = tempfile.NamedTemporaryFile("w", prefix="motley-log-")
        self.process = subprocess.Popen(
            [motley, "serve", folder, *network, *options], stdout=subprocess.PIPE,
            stderr=self.log if stderr is None else stderr, text=True, preexec_fn=before, **popen)
        self.pid = self.process.pid
        atexit.register(self.process.kill)  # where a test fails
        try:
            if "json" in options:  # the address is in the log alone
                self.url = self.read_event()
            else:
                self.first_line = self.read_first_line()
                self.url = self.first_line.rsplit(" at ", 1)[1].strip()
        except BaseException:
            self.close()
            raise
        self.port = int(self.url.rsplit(":", 1)[1]) if self.url.startswith("http") else None

    def read_event(self) -> str:
        """The address in the event serve.listening, of the log's file or of its pipe, which is read so far."""
        words = '"event":"serve.listening"'
        if self.process.stderr is None:
            return json.loads(self.wait_for_line(words))["url"]
        for line in iter(self.process.stderr.readline, ""):
            if words in line:
                return json.loads(line)["url"]
        raise RuntimeError("the server did not start")

    def read_first_line(self) -> str:
        stdout = self.process.stdout
        if not select.select([stdout], [], [], WAIT_SECONDS)[0]:
            raise AssertionError(f"waited {WAIT_SECONDS} s for the server's address: {self.last_lines()}")
        line = stdout.readline()
        if " at " not in line:
            raise RuntimeError(f"the server did not start: {line!r}\n{self.last_lines()}")
        return line

    # What it logs.

    def lines(self) -> str:
        return Path(self.log.name).read_text(errors="replace")

    def last_lines(self, count: int = 12) -> str:
        lines = [line for line in self.lines().splitlines() if " http.re" not in line]
        return "\n".join(lines[-count:])

    def wait_for_line(self, words: str) -> str:
        """The first line of the log with these words."""
        def find() -> str | None:
            return next((line for line in self.lines().splitlines() if words in line), None)

        def found_or_ended():
            ended = not self.alive()
            line = find()
            if line is None and ended:
                raise AssertionError(f"the server ended before it logged {words!r}: {self.last_lines()}")
            return line

        return until(f"{words!r} in the log", found_or_ended, self.last_lines)

    # What it answers.

    def http_connection(self, seconds: float = WAIT_SECONDS, source: str = "127.0.0.1") -> http.client.HTTPConnection:
        if self.port is None:
            return UnixConnection(self.url.removeprefix("unix:"), seconds)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds, source_address=(source, 0))

    def ask(self, path: str, body=None, *, headers: dict | None = None, source: str = "127.0.0.1",
            seconds: float = WAIT_SECONDS) -> tuple[int, str, dict]:
        """Status, text and headers of a GET, or of a POST where there is a body; 0 where the connection ended without an
        answer."""
        connection = self.http_connection(seconds, source)
        text = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        method = "GET" if body is None else "POST"
        try:
            connection.request(method, path, text, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), dict(answer.getheaders())
        except TimeoutError:
            raise AssertionError(f"waited {seconds:.0f} s for the answer to {method} {path}: {self.last_lines()}") from None
        except (ConnectionError, http.client.HTTPException) as error:
            return 0, repr(error), {}
        finally:
            connection.close()

    def get(self, path: str) -> str:
        """The text of an answer with status 200."""
        status, text, _ = self.ask(path)
        if status != 200:
            raise AssertionError(f"GET {path}: {status} {text}")
        return text

    def post(self, path: str, body) -> tuple[int, str]:
        return self.ask(path, body)[:2]

    def metrics(self, headers: dict | None = None) -> dict[str, float]:
        """Every sample by its name with its labels. Asked from an address that no test's clients have."""
        status, text, _ = self.ask("/metrics", headers=headers, source="127.0.0.9")
        if status != 200:
            raise AssertionError(f"GET /metrics: {status} {text}")
        samples = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, value in samples}

    def held(self) -> dict[str, int]:
        """Threads and open files. Those of grammars' helpers are left out, which stay for a while after their last request."""
        unix_sockets = {f"socket:[{line.split()[6]}]" for line in Path("/proc/net/unix").read_text().splitlines()[1:]}
        files = 0
        for link in Path(f"/proc/{self.pid}/fd").iterdir():
            try:
                target = os.readlink(link)
            except FileNotFoundError:  # closed meanwhile
                continue
            files += target not in unix_sockets and not target.startswith("/memfd:motley-grammar")
        return {"threads": len(list(Path(f"/proc/{self.pid}/task").iterdir())), "files": files}

    # Its end.

    def alive(self) -> bool:
        return self.process.poll() is None

    def wait(self, after: str) -> int:
        """Its exit status."""
        try:
            return self.process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"waited {WAIT_SECONDS} s for the server's end after {after}: "
                                 f"{self.last_lines()}") from None

    def end(self, *numbers: signal.Signals) -> int:
        """Its exit status after these signals, one after the other; SIGTERM where none is named."""
        numbers = numbers or (signal.SIGTERM,)
        for at, number in enumerate(numbers):
            if at > 0:
                self.wait_for_line("serve.ending")  # equal signals that both wait are one
            self.process.send_signal(number)
        return self.wait(" and ".join(number.name for number in numbers))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        atexit.unregister(self.process.kill)
        self.process.stdout.close()
        self.log.close()
