"""Heavy requests against the whole program: the server counts what they take within its limits, small requests are answered
before heavy ones that came earlier, and everything is given back.

usage: memory_test.py MOTLEY MODEL [--rounds N] [--length TOKENS] [--timed]

The order of answers is that of the server's own log. With --timed the resident memory and the times of small requests are
judged, too; that needs a machine without other work.
"""

import argparse
import concurrent.futures
import http.client
import itertools
import json
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from server_process import ServerProcess, until

MB = 1 << 20
HEAVY_SECONDS = 300  # that a heavy answer may take, which waits for others
USED, LIMIT, BODIES = "motley_request_memory_bytes", "motley_request_memory_limit_bytes", "motley_http_body_bytes"
NOTHING_LEFT = (USED, BODIES, "motley_sequences_running", "motley_sequences_waiting", "motley_kv_pages_used")
NEIGHBOUR = "127.0.0.2"


@dataclass
class Sent:
    """What came of a request."""
    id: str  # in the log
    status: int = 0
    bytes: int = 0
    refusal: str = ""
    seconds: float = 0


class Server(ServerProcess):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.numbers = itertools.count()

    def resident(self) -> int:
        """Bytes that belong to no file."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) << 10

    def send(self, kind: str, body, source: str = "127.0.0.1") -> "Sent":
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HEAVY_SECONDS, source_address=(source, 0))
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = Sent(f"{kind}-{next(self.numbers)}")
        begin = time.monotonic()
        try:
            connection.request("POST", "/v1/completions", text, {"X-Request-Id": sent.id})
            answer = connection.getresponse()
            sent.status = answer.status
            while piece := answer.read(MB):
                sent.bytes += len(piece)
                sent.refusal += "" if answer.status == 200 else piece.decode()
        except TimeoutError:
            raise AssertionError(f"waited {HEAVY_SECONDS} s for {sent.id}: {self.last_lines()}") from None
        finally:
            connection.close()
        sent.seconds = time.monotonic() - begin
        return sent

    def order(self, wanted: set[str]) -> list[str]:
        """These requests in the order in which their answers ended, once all are in the log."""
        def logged() -> list[str] | None:
            found = [each for each in re.findall(r" http\.re\w+ id=(\S+)", self.lines()) if each in wanted]
            return found if len(found) == len(wanted) else None

        return until(f"the log's lines of {len(wanted)} answers", logged, self.last_lines)


class Peak:
    """The most that `look()` returns while a block runs, looked at every 10 ms."""

    def __init__(self, look):
        self.look, self.ended = look, threading.Event()

    def __enter__(self):
        self.begin = self.most = self.look()
        self.pool = concurrent.futures.ThreadPoolExecutor(1)
        self.watching = self.pool.submit(self.watch)
        return self

    def watch(self):
        while not self.ended.wait(0.01):
            self.most = max(self.most, self.look())

    def __exit__(self, *_):
        self.ended.set()
        self.watching.result()
        self.pool.shutdown()

    def grown(self) -> float:
        return self.most - self.begin


def echo_request(tokens: int, choices: int = 128) -> dict:
    prompts = [[(7 * i + k) % 90 + 1 for i in range(tokens)] for k in range(4)]
    return {"prompt": prompts, "n": choices, "echo": True, "logprobs": 20, "max_tokens": 0}


def stop_request() -> dict:
    stops = [chr(ord("a") + i) * 1000 for i in range(16)]
    return {"prompt": [[1 + i] for i in range(32)], "n": 128, "stop": stops, "max_tokens": 1}


def long_prompt(size: int) -> bytes:
    return b'{"prompt": "' + b"lorem ipsum dolor " * (size // 18) + b'", "max_tokens": 4}'


SMALL = {"prompt": [5, 6, 7], "max_tokens": 4}


class Check:
    def __init__(self, server: Server, timed: bool):
        self.server, self.timed = server, timed

    def accounted(self) -> float:
        """What requests are charged for, which never exceeds its limit."""
        now = self.server.metrics()
        assert now[USED] <= now[LIMIT], f"{now[USED]} bytes are accounted, {now[LIMIT]} are allowed"
        return now[USED]

    def heavy_answer(self, kind: str, body: dict, most: int) -> None:
        with Peak(self.server.resident if self.timed else self.accounted) as peak:
            sent = self.server.send(kind, body)
        print(f"{kind}: {sent.status}, {sent.bytes / 1e6:.1f} MB sent, {peak.grown() / MB:.1f} MiB at most")
        assert sent.status == 200, sent
        assert peak.grown() < most, f"{kind}: {peak.grown()} bytes, and {most} are enough"

    def refusal(self) -> None:
        sent = self.server.send("refused", {"prompt": [[1]] * 32, "n": 128, "logprobs": 20, "max_tokens": 1000})
        print("refused:", sent.status, sent.refusal)
        assert sent.status == 413, sent
        assert re.search(r"may take [\d.]+ .iB", sent.refusal), sent

    def small_ones_first(self, what: str, bodies: list, held: tuple[str, float], max_seconds: float) -> set[int]:
        """Sends small requests from the moment that the server holds that much of the heavy ones until these have ended: one
        that is sent while most of these are under way does not wait for all of them. Gives back the statuses of the heavy
        ones."""
        server, small, (name, amount) = self.server, [], held
        beside_most: list[str] = []  # the small ones of which that can be said
        with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
            running = [pool.submit(server.send, "heavy", body) for body in bodies]
            until(f"{name} of {amount:.0f}", lambda: server.metrics()[name] >= amount,
                  lambda: [each.result() for each in running if each.done()])
            while not small or not all(each.done() for each in running):
                most_run = sum(not each.done() for each in running) > len(running) / 2
                small.append(server.send("small", SMALL, NEIGHBOUR))
                beside_most += [small[-1].id] if most_run else []
                assert small[-1].status == 200, small[-1]
            heavy = [each.result() for each in running]
        order = server.order({each.id for each in small + heavy})
        first = order.index(beside_most[0] if beside_most else small[0].id)
        later = [each for each in order[first:] if each.startswith("heavy")]
        statuses = sorted(each.status for each in heavy)
        print(f"{what}: {statuses}, {len(later)} ended after the first of {len(small)} small requests")
        assert later or not beside_most, f"a small request waited for all the heavy ones: {order}"
        if self.timed:
            slowest = max(each.seconds for each in small)
            print(f"slowest small request: {slowest * 1000:.0f} ms")
            assert slowest < max_seconds, f"a small request took {slowest:.1f} s"
        return set(statuses)

    def long_prompts(self) -> None:
        """Prompts of 15 MB each, more at once than the bodies of one address may hold."""
        statuses = self.small_ones_first("long prompts", [long_prompt(15 * MB)] * 12, (BODIES, 60 * MB), 1)
        assert statuses <= {400, 429}, statuses

    def many_prompts(self, count: int) -> None:
        """Prompts that fill the queue."""
        body = {"prompt": [[1 + i % 50, 2, 3] for i in range(100)], "max_tokens": 40, "ignore_eos": True}
        held = ("motley_sequences_waiting", count / 2)
        statuses = self.small_ones_first(f"{count} prompts", [body] * (count // 100), held, 4)
        assert statuses <= {200, 429}, statuses

    def given_back(self, begin: int) -> None:
        def left() -> dict[str, float]:
            now = self.server.metrics()
            return {name: now[name] for name in NOTHING_LEFT if now[name] != 0}

        until("all memory of requests to be given back", lambda: not left(), left)
        if self.timed:
            until("resident memory to go back", lambda: self.server.resident() < begin + 100 * MB,
                  lambda: f"{self.server.resident() / MB:.0f} MiB, {begin / MB:.0f} MiB at the beginning")
            print(f"end: {self.server.resident() / MB:.1f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--length", type=int, default=250, help="tokens of each echoed prompt")
    parser.add_argument("--prompts", type=int, default=1300, help="that fill the queue")
    parser.add_argument("--timed", action="store_true", help="judges resident memory and times")
    arguments = parser.parse_args()
    server = Server(arguments.program, arguments.model, "--max-queue", "1024", "--kv-memory", "32M")
    check = Check(server, arguments.timed)
    for _ in range(20):  # fills what is made at first use
        assert server.send("small", SMALL, NEIGHBOUR).status == 200
    begin = server.resident()
    for _ in range(arguments.rounds):
        check.heavy_answer("echo", echo_request(arguments.length), 60 * MB)
        check.heavy_answer("stops", stop_request(), 40 * MB)
        check.long_prompts()
        check.many_prompts(arguments.prompts)
        check.refusal()
    check.given_back(begin)
    status = server.end()
    assert status == 0, f"status {status}: {server.last_lines()}"


if __name__ == "__main__":
    main()
