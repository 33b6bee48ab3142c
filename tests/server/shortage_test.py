"""The program where things run short: shortage_test.py MOTLEY GOLDEN [--sanitized]

Memory that ends under heavy requests, and a reader of standard error that has stopped. Each time the server goes on
answering, and says what it could not do. Weights that are cut while the log is not read: it ends all the same.
"""

import argparse
import concurrent.futures
import http.client
import itertools
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import tiny_model
from server_process import WAIT_SECONDS, ServerProcess, until

MEMORY_BESIDE = 1 << 20  # what a server may take beyond what it has when it is ready
HEAVY_BYTES = 15 << 20
HEAVY_AT_ONCE = 8
HEAVY_ROUNDS = 8
HEAVY_SECONDS = 120  # for their answers
LOG_REQUESTS = 6000


class Server(ServerProcess):
    """Whose log only the test reads, if it does."""

    def __init__(self, motley: str, folder: str, *options: str) -> None:
        super().__init__(motley, folder, "--name", "tiny", "--device", "cpu", "--kv-memory", "1M",
                         "--adapter-memory", "1M", *options, stderr=subprocess.PIPE)
        self.asked = itertools.count()

    def send(self, path: str, body: bytes | None = None) -> tuple[int, str]:
        """Status and body; 0 where the connection ended without an answer. The log knows it by its number."""
        return self.ask(path, body, headers={"X-Request-Id": f"ask-{next(self.asked)}"}, seconds=HEAVY_SECONDS)[:2]

    def complete(self) -> str:
        status, body = self.send("/v1/completions", json.dumps(
            {"model": "tiny", "prompt": "the rain in spain", "max_tokens": 8, "temperature": 0}).encode())
        if status != 200:
            raise AssertionError(f"{status}: {body}")
        return json.loads(body)["choices"][0]["text"]

    def metric(self, name: str) -> float:
        return float(re.search(rf"^{name} (\S+)$", self.send("/metrics")[1], re.MULTILINE)[1])

    def end_well(self) -> None:
        status = self.end()
        if status != 0:
            raise AssertionError(f"ended with {status}")
        self.close()


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
        def memory_has_ended() -> bool:
            asked = [clients.submit(server.send, "/v1/completions", body) for body in [heavy, wide] * HEAVY_AT_ONCE]
            seen.update(answer.result()[0] for answer in asked)
            if not server.alive():
                raise AssertionError(f"the server ended: {server.process.stderr.read()[-2000:]}")
            return server.metric("motley_out_of_memory_total") > 0

        if not any(memory_has_ended() for _ in range(HEAVY_ROUNDS)):
            raise AssertionError(f"memory did not end in {HEAVY_ROUNDS} rounds of heavy requests: answers {sorted(seen)}")
        memory_has_ended()  # and once more
    if not seen <= {0, 200, 400, 413, 429, 503}:
        raise AssertionError(f"answers {seen}")
    if server.complete() != before:
        raise AssertionError("another answer than before")
    print(f"memory ended {server.metric('motley_out_of_memory_total'):.0f} times; answers {sorted(seen)}")
    server.process.stderr.close()
    server.end_well()


def fill_log(server: Server) -> None:
    """More lines than fit: a pipe without a reader, and the ring before it."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT_SECONDS)
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
        status, body = server.send("/v1/completions", json.dumps({"model": "tiny", "prompt": "the"}).encode())
        if status != 0:
            raise AssertionError(f"an answer without weights: {status} {body}")
        status = server.wait("its weights were cut")
    if status != 1:
        raise AssertionError(f"ended with {status}")
    if reads_again and f"motley: a page of the file can't be read any more ({weights})" not in read.result():
        raise AssertionError(f"the last words are not there: {read.result()[-1000:]}")
    weights.write_bytes(whole)
    server.close()


def nobody_reads(options: argparse.Namespace, folder: str, reads_again: bool) -> None:
    server = Server(options.motley, folder, "--log-format", "json", "--log-level", "debug")
    before = server.complete()
    fill_log(server)
    if server.complete() != before:
        raise AssertionError("another answer than before")
    if not reads_again:
        return server.end_well()
    lines: list[str] = []
    with concurrent.futures.ThreadPoolExecutor(1) as reader:
        read = reader.submit(lambda: lines.extend(iter(server.process.stderr.readline, "")))
        until("the count of lost lines in the log", lambda: any('"log.lost"' in line for line in lines),
              lambda: f"{len(lines)} lines were read")
        status = server.end()
        read.result()
    events = [json.loads(line) for line in lines]
    server.close()
    if status != 0:
        raise AssertionError(f"ended with {status}")
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
