"""Heavy requests against the whole program: what they take stays within what they are charged, a small
request beside them does not wait for them, and the memory goes back.

usage: memory_test.py MOTLEY MODEL [--rounds N] [--length TOKENS]"""

import argparse
import concurrent.futures
import http.client
import json
import re
import threading
import time

from server_process import ServerProcess

MB = 1 << 20


class Server(ServerProcess):
    def resident(self):
        """Bytes that belong to no file."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            return int(re.search(r"RssAnon:\s+(\d+) kB", status.read()).group(1)) << 10

    def ask(self, body, source="127.0.0.1", path="/v1/completions"):
        """Status, and how many bytes came; the text of what was refused."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300,
                                                source_address=(source, 0))
        connection.request("POST", path, body if isinstance(body, (bytes, str)) else json.dumps(body))
        answer = connection.getresponse()
        size = 0
        text = b""
        while piece := answer.read(MB):
            size += len(piece)
            if answer.status != 200:
                text += piece
        connection.close()
        return answer.status, size, text.decode()

    def stop(self):
        self.process.terminate()
        assert self.process.wait(30) == 0


class Peak:
    """The most that is resident while a block runs."""

    def __init__(self, server):
        self.server = server

    def __enter__(self):
        self.ended = threading.Event()
        self.begin = self.most = self.server.resident()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self):
        while not self.ended.wait(0.01):
            self.most = max(self.most, self.server.resident())

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def grown(self):
        return self.most - self.begin


def echo_request(tokens, choices=128):
    prompts = [[(7 * i + k) % 90 + 1 for i in range(tokens)] for k in range(4)]
    return {"prompt": prompts, "n": choices, "echo": True, "logprobs": 20, "max_tokens": 0}


def stop_request():
    stops = [chr(ord("a") + i) * 1000 for i in range(16)]
    return {"prompt": [[1 + i] for i in range(32)], "n": 128, "stop": stops, "max_tokens": 1}


def long_prompt(size):
    return '{"prompt": "' + "lorem ipsum dolor " * (size // 18) + '", "max_tokens": 4}'


def check_echo(server, length):
    with Peak(server) as peak:
        status, size, text = server.ask(echo_request(length))
    print(f"echo: {status}, {size / 1e6:.1f} MB sent, {peak.grown() / MB:.1f} MiB at most")
    assert status == 200, text
    assert peak.grown() < 60 * MB


def check_stops(server):
    with Peak(server) as peak:
        status, size, text = server.ask(stop_request())
    print(f"stops: {status}, {size / 1e6:.1f} MB sent, {peak.grown() / MB:.1f} MiB at most")
    assert status == 200, text
    assert peak.grown() < 40 * MB


def check_refusal(server):
    request = {"prompt": [[1]] * 32, "n": 128, "logprobs": 20, "max_tokens": 1000}
    status, _, text = server.ask(request)
    print("refused:", status, text)
    assert status == 413, status


def check_beside_long_prompts(server, small, limit):
    """Twelve prompts of 16 MB from one address, and small requests of another."""
    body = long_prompt(15 * MB).encode()
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        heavy = [pool.submit(server.ask, body) for _ in range(12)]
        times = []
        while not all(each.done() for each in heavy):
            start = time.monotonic()
            status, _, text = server.ask(small, "127.0.0.2")
            assert status == 200, text
            times.append(time.monotonic() - start)
        statuses = [each.result()[0] for each in heavy]
    print(f"beside long prompts: {statuses}, {len(times)} small requests, slowest "
          f"{max(times) * 1000:.0f} ms")
    assert set(statuses) <= {400, 429}, statuses
    assert max(times) < limit


def check_beside_many(server, small, count, limit):
    """Prompts of one address that fill the queue, and small requests of another."""
    request = {"prompt": [[1 + i % 50, 2, 3] for i in range(100)], "max_tokens": 40,
               "ignore_eos": True}
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        heavy = [pool.submit(server.ask, request) for _ in range(count // 100)]
        times = []
        while not all(each.done() for each in heavy):
            start = time.monotonic()
            status, _, text = server.ask(small, "127.0.0.2")
            assert status == 200, text
            times.append(time.monotonic() - start)
        statuses = sorted(each.result()[0] for each in heavy)
    print(f"beside {count} prompts: {statuses}, {len(times)} small requests, slowest "
          f"{max(times) * 1000:.0f} ms")
    assert max(times) < limit


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--length", type=int, default=250)
    arguments = parser.parse_args()
    server = Server(arguments.program, arguments.model, "--max-queue", "1024", "--kv-memory", "32M")
    small = {"prompt": [5, 6, 7], "max_tokens": 4}
    try:
        quiet = []
        for _ in range(20):
            start = time.monotonic()
            assert server.ask(small, "127.0.0.2")[0] == 200
            quiet.append(time.monotonic() - start)
        print(f"quiet: {sorted(quiet)[10] * 1000:.1f} ms")
        begin = server.resident()
        print(f"begin: {begin / MB:.1f} MiB")
        for _ in range(arguments.rounds):
            check_echo(server, arguments.length)
            check_stops(server)
            check_beside_long_prompts(server, small, 1)
            check_beside_many(server, small, 1300, 4)
            check_refusal(server)
            print(f"now: {server.resident() / MB:.1f} MiB")
        deadline = time.monotonic() + 30
        while server.resident() > begin + 50 * MB and time.monotonic() < deadline:
            time.sleep(0.2)
        print(f"end: {server.resident() / MB:.1f} MiB")
        assert server.resident() < begin + 100 * MB
    finally:
        server.stop()


if __name__ == "__main__":
    main()
