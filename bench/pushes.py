#!/usr/bin/env python3
"""What pushing an adapter, again and again, costs those who stream from it meanwhile.

    python3 bench/pushes.py URL ADAPTER [--streams 64] [--pushes 200] [--every SECONDS] [--tokens 128] [--key KEY]

Streams answers of the adapter, first quietly, then while its files are pushed, each time with other bytes. Prints the
time between tokens of both, how long a push takes, and the server's resident memory before and after. Every answer must
be whole and of one version. The server takes pushes: `motley serve ... --allow-adapter-loading`.
"""

import argparse
import asyncio
import json
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

NAME = "pushed"
PROMPT = list(range(10, 26))  # ids that every vocabulary has
PROCESSES = 4  # that read streams


class Content:
    """An adapter's files as one safetensors body, of which each copy differs in the last bits of some numbers."""

    def __init__(self, folder: Path):
        file = (folder / "adapter_model.safetensors").read_bytes()
        begin = 8 + int.from_bytes(file[:8], "little")
        header = json.loads(file[8:begin])
        header["__metadata__"] = {"adapter_config": (folder / "adapter_config.json").read_text()}
        first = min((each for name, each in header.items() if name != "__metadata__"),
                    key=lambda each: each["data_offsets"][0])
        self.width = {"F64": 8, "F32": 4}.get(first["dtype"], 2)
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        self.begin = 8 + len(text)
        self.bytes = bytearray(len(text).to_bytes(8, "little") + text + file[begin:])

    def change(self, number: int) -> bytearray:
        """The lowest bits of the first sixteen numbers are those of `number`."""
        for bit in range(16):
            at = self.begin + bit * self.width
            self.bytes[at] = (self.bytes[at] & 0xFE) | (number >> bit & 1)
        return self.bytes


class Client:
    def __init__(self, url: str, key: str | None):
        parts = urlsplit(url)
        self.host, self.port = parts.hostname, parts.port or 80
        self.head = f"Host: {parts.netloc}\r\n" + (f"Authorization: Bearer {key}\r\n" if key else "")

    async def ask(self, method: str, path: str, body: bytes | bytearray = b"", json_body: bool = True):
        """The status, and a reader of the body. HTTP/1.0, so that the body ends with the connection."""
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=1 << 22)
        kind = "application/json" if json_body else "application/octet-stream"
        writer.write(f"{method} {path} HTTP/1.0\r\n{self.head}Content-Type: {kind}\r\n"
                     f"Content-Length: {len(body)}\r\n\r\n".encode())
        for begin in range(0, len(body), 1 << 24):
            writer.write(memoryview(body)[begin:begin + (1 << 24)])
            await writer.drain()
        status = int((await reader.readline()).split()[1])
        while (await reader.readline()).strip():
            pass
        return status, reader, writer

    async def whole(self, *arguments, **more) -> tuple[int, bytes]:
        status, reader, writer = await self.ask(*arguments, **more)
        text = await reader.read()
        writer.close()
        return status, text

    async def resident(self) -> float:
        _, text = await self.whole("GET", "/metrics")
        return next((float(line.split()[1]) for line in text.decode().splitlines()
                     if line.startswith("process_resident_memory_bytes ")), 0.0)


class Streams:
    """So many answers at a time, until it is late."""

    def __init__(self, client: Client, tokens: int):
        self.client, self.tokens = client, tokens
        self.gaps: list[float] = []
        self.answers, self.failures = 0, []

    async def one(self, seed: int) -> None:
        body = {"model": NAME, "prompt": PROMPT, "max_tokens": self.tokens, "ignore_eos": True, "temperature": 1,
                "seed": seed, "stream": True, "return_token_ids": True, "stream_options": {"include_usage": True}}
        status, reader, writer = await self.client.ask("POST", "/v1/completions", json.dumps(body).encode())
        last, versions, tokens = None, set(), 0
        while line := await reader.readline():
            if status != 200:
                self.failures.append((status, line))
                break
            if not line.startswith(b"data: {"):
                continue
            now = time.perf_counter()
            event = json.loads(line[6:])
            if "adapter_version" in event:
                versions.add(event["adapter_version"])
            tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
            if event.get("choices"):
                if last is not None:
                    self.gaps.append(now - last)
                last = now
        writer.close()
        self.answers += 1
        if status == 200 and (tokens != self.tokens or len(versions) != 1):
            self.failures.append((f"{tokens} tokens", f"versions {versions}"))

    async def run(self, seeds: range, end: float) -> None:
        async def again(seed: int) -> None:
            while time.time() < end:
                await self.one(seed)
                seed += 1 << 20
        await asyncio.gather(*(again(seed) for seed in seeds))

    def add(self, other: "Streams") -> None:
        self.gaps += other.gaps
        self.answers += other.answers
        self.failures += other.failures


def stream(options: argparse.Namespace, seeds: range, end: float) -> Streams:
    """In a process of its own, so that pushes and other streams don't delay what it measures."""
    streams = Streams(Client(options.url, options.key), options.tokens)
    asyncio.run(streams.run(seeds, end))
    streams.client = None
    return streams


def stream_all(pool: ProcessPoolExecutor, options: argparse.Namespace, seconds: float):
    """Begins; returns what waits for the end and has all that was measured."""
    step = max(1, -(-options.streams // PROCESSES))
    parts = [pool.submit(stream, options, range(first, min(first + step, options.streams)), time.time() + seconds)
             for first in range(0, options.streams, step)]

    def wait() -> Streams:
        whole = Streams(Client(options.url, options.key), options.tokens)
        for each in parts:
            whole.add(each.result())
        return whole
    return wait


def part(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def line(name: str, streams: Streams) -> str:
    return (f"{name:<9} {streams.answers:>8} {len(streams.failures):>7} {1e3 * part(streams.gaps, 0.5):>9.2f} "
            f"{1e3 * part(streams.gaps, 0.99):>9.2f} {1e3 * max(streams.gaps, default=0):>9.2f}")


def measure(options: argparse.Namespace, pool: ProcessPoolExecutor) -> int:
    client, content = Client(options.url, options.key), Content(options.adapter)
    times, refused = [], 0

    def push(number: int) -> int:
        body = content.change(number)
        begin = time.perf_counter()
        status, text = asyncio.run(client.whole("PUT", f"/v1/adapters/{NAME}?version=v{number}", body, json_body=False))
        if status == 200:
            times.append(time.perf_counter() - begin)
        elif status not in (429, 503):
            raise SystemExit(f"a push: {status} {text.decode()}")
        return status

    push(0)
    seconds = options.pushes * options.every
    quiet = stream_all(pool, options, seconds)()
    before = asyncio.run(client.resident())
    ended = stream_all(pool, options, seconds)
    due = time.perf_counter()
    times.clear()
    for number in range(1, options.pushes + 1):
        refused += push(number) != 200
        due += options.every
        time.sleep(max(0.0, due - time.perf_counter()))
    busy = ended()
    after = asyncio.run(client.resident())

    size = len(content.bytes)
    print(f"{size / 1e6:.1f} MB every {options.every} s, {options.streams} streams of {options.tokens} tokens")
    print(f"{'':<9} {'answers':>8} {'failed':>7} {'p50, ms':>9} {'p99, ms':>9} {'max, ms':>9}   between tokens")
    print(line("quiet", quiet))
    print(line("pushing", busy))
    print(f"p99 {part(busy.gaps, 0.99) / part(quiet.gaps, 0.99):.2f} of the quiet one's")
    print(f"{len(times)} pushes, {refused} asked to come again: p50 {1e3 * part(times, 0.5):.1f} ms, "
          f"p99 {1e3 * part(times, 0.99):.1f} ms, {size / part(times, 0.5) / 1e9:.2f} GB/s")
    print(f"resident {before / 1e6:.0f} MB before, {after / 1e6:.0f} after")
    for failure in (quiet.failures + busy.failures)[:5]:
        print("failed:", *failure)
    return 1 if quiet.failures or busy.failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("adapter", type=Path, help="its folder")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--pushes", type=int, default=200)
    parser.add_argument("--every", type=float, default=0.1, help="seconds from push to push")
    parser.add_argument("--tokens", type=int, default=128, help="of an answer")
    parser.add_argument("--key", help="the server's key, if it has one")
    options = parser.parse_args()
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
        return measure(options, pool)


if __name__ == "__main__":
    sys.exit(main())
