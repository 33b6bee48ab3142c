"""The program where things run short: shortage_test.py MOTLEY GOLDEN [--sanitized]

Memory that ends under heavy requests, and a reader of standard error that has stopped. Each time the server goes on
answering, and says what it could not do. Weights that are cut while the log is not read: it ends all the same.
"""

import argparse
import atexit
import concurrent.futures
import http.client
import itertools
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tiny_model

MEMORY_BESIDE = 1 << 20  # what a server may take beyond what it has when it is ready
HEAVY_BYTES = 15 << 20
HEAVY_AT_ONCE = 8
LOG_REQUESTS = 6000
MAX_EXIT_SECONDS = 10


class Server:
    def __init__(self, motley: str, folder: str, *options: str) -> None:
        self.process = subprocess.Popen(
            [motley, "serve", folder, "--name", "tiny", "--port", "0", "--device", "cpu", "--kv-memory", "1M",
             "--adapter-memory", "1M", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)  # where the test fails
        line = self.process.stdout.readline()
        if " at " not in line:
            raise RuntimeError(f"the server did not start: {line!r} {self.process.stderr.read()}")
        self.port = int(line.rsplit(":", 1)[1])
        self.asked = itertools.count()

    def ask(self, path: str, body: bytes | None = None) -> tuple[int, str]:
        """Status and body; 0 where the connection ended without an answer. The log knows it by its number."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request("POST" if body else "GET", path, body, {"X-Request-Id": f"ask-{next(self.asked)}"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (ConnectionError, http.client.HTTPException):
            return 0, ""
        finally:
            connection.close()

    def complete(self) -> str:
        status, body = self.ask("/v1/completions", json.dumps(
            {"model": "tiny", "prompt": "the rain in spain", "max_tokens": 8, "temperature": 0}).encode())
        if status != 200:
            raise AssertionError(f"{status}: {body}")
        return json.loads(body)["choices"][0]["text"]

    def metric(self, name: str) -> float:
        return float(re.search(rf"^{name} (\S+)$", self.ask("/metrics")[1], re.MULTILINE)[1])

    def end(self) -> None:
        begin = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(60)
        took = time.monotonic() - begin
        if status != 0 or took > MAX_EXIT_SECONDS:
            raise AssertionError(f"ended with {status} after {took:.1f} s")


def memory_ends(options: argparse.Namespace, folder: str) -> None:
    server = Server(options.motley, folder)
    before = server.complete()
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    limit = int(re.search(r"VmSize:\s+(\d+) kB", status)[1]) * 1024 + MEMORY_BESIDE
    resource.prlimit(server.process.pid, resource.RLIMIT_AS, (limit, limit))
    heavy = json.dumps({"model": "tiny", "prompt": "ab " * (HEAVY_BYTES // 3)}).encode()
    wide = json.dumps({"model": "tiny", "prompt": ["the " * 20] * 4, "n": 16, "max_tokens": 1, "logprobs": 5,
                       "echo": True}).encode()
    seen = set()
    with concurrent.futures.ThreadPoolExecutor(HEAVY_AT_ONCE) as clients:
        for _ in range(2):
            asked = [clients.submit(server.ask, "/v1/completions", body) for body in [heavy, wide] * HEAVY_AT_ONCE]
            seen |= {answer.result()[0] for answer in asked}
    if server.process.poll() is not None:
        raise AssertionError(f"the server ended: {server.process.stderr.read()[-2000:]}")
    if not seen <= {0, 200, 400, 413, 429, 503}:
        raise AssertionError(f"answers {seen}")
    if server.complete() != before:
        raise AssertionError("another answer than before")
    ended = server.metric("motley_out_of_memory_total")
    if ended == 0:
        raise AssertionError(f"memory never ended; answers {sorted(seen)}")
    print(f"memory ended {ended:.0f} times; answers {sorted(seen)}")
    server.process.stderr.close()
    server.end()


def fill_log(server: Server) -> None:
    """More lines than fit: a pipe without a reader, and the ring before it."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    for i in range(LOG_REQUESTS):
        connection.request("GET", f"/nothing/{i}/" + 'x"\\' * 40, headers={"X-Request-Id": f"nothing-{i}"})
        answer = connection.getresponse()
        answer.read()
        if answer.status != 404:
            raise AssertionError(f"{answer.status}")
    if server.metric("motley_log_lines_lost_total") == 0:
        raise AssertionError("no line was lost")


def weights_are_cut(options: argparse.Namespace, folder: str, reads_again: bool) -> None:
    """A process whose log is not read ends where its weights are gone, and says so to a later reader."""
    server = Server(options.motley, folder, "--compute", "f32")
    server.complete()
    fill_log(server)
    weights = Path(folder) / "model.safetensors"
    whole = weights.read_bytes()
    os.truncate(weights, len(whole) // 2)
    with concurrent.futures.ThreadPoolExecutor(1) as reader:
        read = reader.submit(server.process.stderr.read) if reads_again else None
        begin = time.monotonic()
        status, body = server.ask("/v1/completions", json.dumps({"model": "tiny", "prompt": "the"}).encode())
        if status != 0:
            raise AssertionError(f"an answer without weights: {status} {body}")
        status = server.process.wait(60)
        took = time.monotonic() - begin
    if status != 1 or took > MAX_EXIT_SECONDS:
        raise AssertionError(f"ended with {status} after {took:.1f} s")
    if reads_again and f"motley: a page of the file can't be read any more ({weights})" not in read.result():
        raise AssertionError(f"the last words are not there: {read.result()[-1000:]}")
    weights.write_bytes(whole)
    print(f"without weights it ended after {took:.1f} s")


def nobody_reads(options: argparse.Namespace, folder: str, reads_again: bool) -> None:
    server = Server(options.motley, folder, "--log-format", "json", "--log-level", "debug")
    before = server.complete()
    fill_log(server)
    if server.complete() != before:
        raise AssertionError("another answer than before")
    if not reads_again:
        return server.end()
    events = []
    for line in server.process.stderr:
        events.append(json.loads(line))
        if events[-1]["event"] == "log.lost":
            break
    with concurrent.futures.ThreadPoolExecutor(1) as reader:
        rest = reader.submit(server.process.stderr.readlines)
        server.end()
        events += [json.loads(line) for line in rest.result()]
    # Each request has one line, which was read or is counted among the lost.
    seen = [event["id"] for event in events if event["event"].startswith("http.")]
    asked = {f"nothing-{i}" for i in range(LOG_REQUESTS)} | {f"ask-{i}" for i in range(next(server.asked))}
    said = sum(event["lines"] for event in events if event["event"] == "log.lost")
    if not set(seen) <= asked or len(seen) != len(set(seen)) or said != len(asked) - len(seen):
        raise AssertionError(f"{len(asked)} lines were written, {len(seen)} read and {said} lost")
    # The line of the last answer may be written while the server has begun to end.
    ending = [event["event"] for event in events].index("serve.ending")
    if any(not event["event"].startswith("http.") for event in events[ending + 1:]):
        raise AssertionError(f"the last lines are {events[ending:]}")
    print(f"{len(events)} lines were read and {said} lost")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("motley")
    parser.add_argument("golden", type=Path)
    parser.add_argument("--sanitized", action="store_true", help="sanitizers take all addresses there are")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = f"{scratch}/tiny"
        tiny_model.make(options.golden, Path(folder))
        if not options.sanitized:
            memory_ends(options, folder)
        for reads_again in (True, False):
            nobody_reads(options, folder, reads_again)
            weights_are_cut(options, folder, reads_again)


if __name__ == "__main__":
    sys.exit(main())
