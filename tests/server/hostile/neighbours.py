"""Clients of another address that want nothing special: what an attack must not touch."""

import http.client
import json
import multiprocessing
import statistics
import threading
import time
from dataclasses import dataclass, field

ADDRESS = "127.0.0.2"
PAUSE = 0.02  # seconds between an answer and the next request
MAX_WAITING = 60  # seconds for an answer, far beyond every limit

REQUESTS = {
    "base": {"model": "base", "prompt": "The old stones of", "max_tokens": 4, "temperature": 0},
    "adapter": {"model": "cynic", "prompt": "Money is", "max_tokens": 4, "temperature": 0.8,
                "seed": 3, "logprobs": 1},
    # Reported, held to its answer and to being answered, but not to the limit of time: it asks
    # for the same grammars' workers that attacks keep busy.
    "guided": {"model": "base", "prompt": "A word:", "max_tokens": 4, "temperature": 0,
               "guided_regex": "[a-z ]{3,9}"},
}
TIMED = ("base", "adapter")


@dataclass
class Times:
    """What one neighbour saw in a while."""
    seconds: list = field(default_factory=list)
    finished: int = 0
    wrong: list = field(default_factory=list)  # descriptions of answers that are not the isolated one

    @staticmethod
    def together(several) -> "Times":
        total = Times()
        for each in several:
            total.seconds += each.seconds
            total.finished += each.finished
            total.wrong += each.wrong
        return total

    def median(self) -> float:
        return statistics.median(self.seconds) if self.seconds else 0.0

    def p90(self) -> float:
        return sorted(self.seconds)[int(len(self.seconds) * 0.9)] if self.seconds else 0.0

    def longest(self) -> float:
        return max(self.seconds, default=0.0)


class Neighbour(threading.Thread):
    """Sends its request again and again; the one without an adapter opens a connection each time,
    as a new client does."""

    def __init__(self, name: str, port: int, headers: dict):
        super().__init__(daemon=True)
        self.kind, self.port, self.headers = name, port, {"Content-Type": "application/json", **headers}
        self.text, self.keeps_connection = json.dumps(REQUESTS[name]), name != "base"
        self.connection, self.isolated = None, None
        self.awake = threading.Event()
        self.awake.set()
        self.lock, self.times, self.sent_at = threading.Lock(), Times(), None

    def ask(self) -> tuple[int, object]:
        if self.connection is None:
            self.connection = http.client.HTTPConnection(
                "127.0.0.1", self.port, timeout=MAX_WAITING, source_address=(ADDRESS, 0))
        try:
            self.connection.request("POST", "/v1/completions", self.text, self.headers)
            response = self.connection.getresponse()
            status, body = response.status, response.read()
            if status != 200:
                return status, body.decode(errors="replace")[:200]
            return status, json.loads(body)["choices"]
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.drop()
            return 0, f"{type(error).__name__}: {error}"
        finally:
            if not self.keeps_connection:
                self.drop()

    def drop(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = None

    def isolate(self) -> str:
        """Keeps the answer that it gets alone; what is wrong with it."""
        status, self.isolated = self.ask()
        return "" if status == 200 else f"alone: {status} {self.isolated}"

    def run(self) -> None:
        while self.awake.wait():
            with self.lock:
                self.sent_at = time.monotonic()
            status, answer = self.ask()
            with self.lock:
                self.times.seconds.append(time.monotonic() - self.sent_at)
                self.sent_at, self.times.finished = None, self.times.finished + 1
                if status != 200:
                    self.times.wrong.append(f"{status} {answer}")
                elif answer != self.isolated:
                    self.times.wrong.append(f"{answer} and not {self.isolated}")
            time.sleep(PAUSE)

    def take(self) -> Times:
        """What has come since the last call, a request on its way counted with the time so far."""
        with self.lock:
            taken, self.times = self.times, Times()
            if self.sent_at is not None:
                taken.seconds.append(time.monotonic() - self.sent_at)
        return taken


def live(pipe, port: int, headers: dict) -> None:
    """The process of the neighbours: what comes by the pipe is answered."""
    neighbours = {name: Neighbour(name, port, headers) for name in REQUESTS}
    while (order := pipe.recv()) != "end":
        if order in ("rest", "wake"):
            for each in neighbours.values():
                each.awake.set() if order == "wake" else each.awake.clear()
            pipe.send(None)
        elif order == "isolate":
            # Twice: the first one compiles the grammar and loads the adapter.
            pipe.send([problem for each in [*neighbours.values()] * 2 if (problem := each.isolate())])
        elif order == "go":
            for each in neighbours.values():
                each.start()
            pipe.send(None)
        else:
            pipe.send({name: each.take() for name, each in neighbours.items()})


class Neighbours:
    """A process of its own, so that nothing here but the server delays them."""

    def __init__(self, port: int, headers: dict):
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=live, args=(theirs, port, headers), daemon=True)
        self.process.start()
        problems = self.ask("isolate")
        if problems:
            self.close()
            raise RuntimeError(f"neighbours get no answers from a quiet server: {problems}")
        self.ask("go")

    def ask(self, order: str):
        self.pipe.send(order)
        return self.pipe.recv()

    def times(self) -> dict[str, Times]:
        return self.ask("times")

    def close(self) -> None:
        self.process.kill()
        self.process.join()
