"""Load of every kind on `motley serve`, with memory that is too small: each answer that is finished equals the one that its
request gets alone; no thread, descriptor, sequence, page or adapter is left at the end.

soak_test.py MOTLEY GOLDEN [--requests N] [--attacks] [--timed] [--device cuda] [--dp D] [--tp N] [--ep E] ...

With --timed the resident memory and the times of attacks are judged, too; that needs a machine without other work.
"""

import argparse
import asyncio
import json
import os
import random
import re
import sys
import tempfile
import time
from pathlib import Path

import soak_attacks
import tiny_model
from server_process import LOOK_SECONDS, WAIT_SECONDS, ServerProcess, until

# Adapters of all kinds: on attention, experts, embeddings, the head; ragged, shared, rsLoRA.
ADAPTERS = ["attention", "all_linear", "experts", "shared_outer", "rslora", "lm_head",
            "ragged_per_expert", "gate_only", "down_only", "router", "embeddings", "experts_rank_1"]
ALONE_ONLY = ["dora", "lora_bias", "modules_to_save"]
REPLACED = "late"  # a name whose content goes to and fro between these
CONTENTS = ["v4_fused", "up_only"]
WORDS = "the rain in spain stays mainly on a plain of hills and old stones near some sea".split()
LEAST_KV = "500K"  # one sequence of the longest, or a dozen short ones
LEAST_ADAPTERS = "2M"
KEY = "soak"
# What numbers say of requests and adapters that have gone, a moment after the last answer.
NOTHING_LEFT = ["kv_pages_used", "adapters", "adapter_memory_pages_pinned", "sequences_running", "sequences_waiting"]
MAX_MEMORY_LEFT = 100 << 20
MAX_GROWTH = 8 << 20  # of resident memory in the last third
# With --timed: until an attack has ended, and until a request is accepted that was refused for the moment.
MAX_ATTACK_SECONDS = 120
MAX_REFUSED_SECONDS = 10
# Without: where more answers than these are missing at the end, something hangs.
LAST_ATTACKS_SECONDS = 300
RETRY_SECONDS = 0.2
PROGRESS = 2000  # requests between two lines about it
TURNS_A_PAUSE = 3  # of the loader


def pushed_body(folder: Path) -> bytes:
    """An adapter's files as one safetensors body."""
    file = (folder / "adapter_model.safetensors").read_bytes()
    begin = 8 + int.from_bytes(file[:8], "little")
    header = json.loads(file[8:begin])
    header["__metadata__"] = {"adapter_config": (folder / "adapter_config.json").read_text()}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + file[begin:]


def request_body(rng: random.Random, index: int) -> dict:
    """A request that has one right answer."""
    most = rng.randint(40, 90) if index % 16 == 0 else rng.randint(1, 12)
    body = {"model": "tiny", "temperature": 0, "max_tokens": most,
            "prompt": " ".join(rng.choices(WORDS, k=rng.choice((1, 3, 6, 12, 40))))}
    kind = rng.randrange(6)
    if kind == 1:
        body["model"] = rng.choice(ADAPTERS + ALONE_ONLY)
    elif kind == 2:
        body["adapters"] = [{"name": rng.choice(ADAPTERS), "scale": rng.choice((0.5, 2.0))}]
    elif kind == 3:
        body["adapters"] = [{"name": name, "scale": 0.5} for name in rng.sample(ADAPTERS, 2)]
    elif kind == 4:
        body["model"] = REPLACED
    way = rng.randrange(8)
    if way == 1:
        body |= {"temperature": 0.9, "seed": index, "top_p": 0.9}
    elif way == 2:
        body |= {"temperature": 1, "seed": index, "top_k": 20, "n": 3, "frequency_penalty": 0.5,
                 "repetition_penalty": 1.1}
    elif way == 3:
        body |= {"stop": ["ea", "n"], "min_tokens": 1}
    elif way == 4:
        body |= {"guided_regex": "[a-f]{3,9}", "seed": index, "temperature": 1}
    elif way == 5:
        body |= {"echo": True, "max_tokens": rng.randint(0, 3)}
    if rng.randrange(2):
        body["logprobs"] = 2
    return body


def part_of_answer(choice: dict) -> dict:
    logprobs = choice.get("logprobs") or {}
    return {"text": choice["text"], "finish": choice["finish_reason"],
            "logprobs": logprobs.get("token_logprobs", []), "tokens": logprobs.get("tokens", [])}


class Connection:
    """HTTP/1.1 over a socket that stays open from request to request."""

    def __init__(self, port: int):
        self.port, self.reader, self.writer = port, None, None
        self.version = None  # of the adapter of the last answer

    async def send(self, path: str, body: dict | bytes, method: str = "POST") -> None:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writer.write(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
                          f"Content-Length: {len(text)}\r\n\r\n".encode() + text)
        await self.writer.drain()

    async def head(self) -> tuple[int, dict]:
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        return int(lines[0].split()[1]), fields

    async def body(self, fields: dict) -> bytes:
        if "content-length" in fields:
            return await self.reader.readexactly(int(fields["content-length"]))
        return b"".join([piece async for piece in self.pieces()])

    async def pieces(self):
        while size := int(await self.reader.readline(), 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readline()

    async def post(self, path: str, body: dict | bytes, method: str = "POST") -> tuple[int, dict | str]:
        await self.send(path, body, method)
        status, fields = await self.head()
        text = (await self.body(fields)).decode()
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text

    async def complete(self, body: dict) -> tuple[int, list | dict]:
        """The choices, whether they come whole or in a stream."""
        await self.send("/v1/completions", body)
        status, fields = await self.head()
        self.version = None
        if "chunked" not in fields.get("transfer-encoding", ""):
            answer = json.loads(await self.body(fields))
            if status != 200:
                return status, answer
            self.version = answer.get("adapter_version")
            return status, [part_of_answer(choice) for choice in answer["choices"]]
        choices = [{"text": "", "finish": None, "logprobs": [], "tokens": []}
                   for _ in range(body.get("n", 1))]
        failure = None
        async for event in self.events():
            failure = event.get("error") or failure
            self.version = event.get("adapter_version", self.version)
            for choice in event.get("choices", []):
                part, whole = part_of_answer(choice), choices[choice["index"]]
                whole["finish"] = part.pop("finish") or whole["finish"]
                for key, value in part.items():
                    whole[key] += value
        return (200, choices) if failure is None else (500, {"error": failure, "so far": choices})

    async def events(self):
        left = b""
        async for piece in self.pieces():
            *events, left = (left + piece).split(b"\n\n")
            for event in events:
                if event != b"data: [DONE]":
                    yield json.loads(event.removeprefix(b"data: "))

    def close(self) -> None:
        if self.writer is not None:
            self.writer.transport.abort()
        self.reader = self.writer = None


class Server(ServerProcess):
    def __init__(self, options, folder: Path, kv: str, adapter_memory: str, replicas: int = 1):
        self.folder = folder
        names = [f"{name}={folder}/adapters/{name}" for name in ADAPTERS + ALONE_ONLY]
        names.append(f"{REPLACED}={folder}/adapters/{CONTENTS[0]}")
        keys = folder / "keys"
        keys.write_text(KEY + "\n")
        # A model this small is slower on many processors.
        processors = sorted(os.sched_getaffinity(0))[-2:]
        super().__init__(
            options.motley, folder, "--device", options.device,
            "--compute", options.compute, "--kv-memory", kv, "--adapter-memory", adapter_memory,
            "--allow-adapter-loading", "--adapter-root", f"{folder}/adapters",
            *(["--dp", str(replicas)] if replicas > 1 else []),
            *(["--tp", str(options.tp)] if options.tp > 1 else []),
            *(["--ep", str(options.ep)] if options.ep > 1 else []),
            *(["--batch-invariant"] if options.batch_invariant else []),
            *(["--api-key-file", keys] if options.attacks else []),
            *(word for name in names for word in ("--adapter", name)),
            before=lambda: os.sched_setaffinity(0, processors))

    def sums(self) -> dict[str, float]:
        """The metrics; of replicas, their sum."""
        values: dict[str, float] = {}
        for name, value in self.metrics({"Authorization": f"Bearer {KEY}"}).items():
            name = re.sub(r'\{replica="\d+"\}$', "", name)
            values[name] = values.get(name, 0) + value
        return values

    def resident(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) << 10

    def count(self, what: str) -> int:
        return len(list(Path(f"/proc/{self.pid}/{what}").iterdir()))

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
        return {"threads": self.count("task"), "files": files}


def equal(got: list, wanted: list, tolerance: float) -> bool:
    def alike(one, other):
        if tolerance == 0 or one is None or other is None:
            return one == other
        return abs(one - other) <= tolerance
    return len(got) == len(wanted) and all(
        (a["text"], a["finish"], a["tokens"]) == (b["text"], b["finish"], b["tokens"])
        and len(a["logprobs"]) == len(b["logprobs"])
        and all(alike(*pair) for pair in zip(a["logprobs"], b["logprobs"]))
        for a, b in zip(got, wanted))


class Soak:
    def __init__(self, options, server: Server, bodies: list, alone: list, versions: dict[str, int]):
        self.options, self.server, self.bodies, self.alone = options, server, bodies, alone
        self.versions = versions  # of what REPLACED has, and which of CONTENTS that is
        self.left, self.counts, self.wrong, self.gone = options.requests, {}, [], set()
        self.finished = 0  # requests of clients
        self.attacking: dict[int, str] = {}  # by attacker
        self.resident: list[int] = []

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    async def client(self, seed: int) -> None:
        rng, connection = random.Random(seed), Connection(self.server.port)
        while self.left > 0:
            self.left -= 1
            which = rng.randrange(len(self.bodies))
            body = self.bodies[which] | {"stream": rng.randrange(2) == 1}
            way = rng.randrange(20)
            if way == 0:
                # Gone before the answer, at any time.
                await connection.send("/v1/completions", body)
                await asyncio.sleep(rng.random() * 0.02)
                connection.close()
                self.count("gone")
            elif way == 1:
                # Gone in the middle of it.
                await connection.send("/v1/completions", body | {"stream": True})
                status, _ = await connection.head()
                if status == 200:
                    await connection.reader.readline()
                connection.close()
                self.count("cut")
            else:
                self.judge(which, body, *await self.answer(connection, body), connection.version)
            self.finished += 1
        connection.close()

    async def answer(self, connection: Connection, body: dict) -> tuple[int, list | dict]:
        """Asks again where an attack has taken the memory, as the server says."""
        most = MAX_REFUSED_SECONDS if self.options.timed else WAIT_SECONDS
        for _ in range(int(most / RETRY_SECONDS) if self.options.attacks else 1):
            status, answer = await connection.complete(body)
            if status != 429:
                break
            self.count("told to come again")
            await asyncio.sleep(RETRY_SECONDS)
        return status, answer

    def judge(self, which: int, body: dict, status: int, answer, version: str | None) -> None:
        names = [body["model"]] + [each["name"] for each in body.get("adapters", [])]
        if status == 200:
            # Of contents that come and go, the one that the answer names.
            content = self.versions[version] if body["model"] == REPLACED else 0
            right = equal(answer, self.alone[which][content], self.options.tolerance)
            self.count("equal" if right else "wrong")
            if not right:
                self.wrong.append((body, answer, self.alone[which]))
        elif status == 404 and any(name in self.gone for name in names):
            self.count("unloaded")
        else:
            self.count("wrong")
            self.wrong.append((body, status, answer))

    async def loader(self) -> None:
        """Adapters go and come. One is replaced in place, by its path and by pushes, at times while all stands still."""
        rng, connection, turn = random.Random(7), Connection(self.server.port), 0
        pushed = [pushed_body(self.server.folder / "adapters" / content) for content in CONTENTS]

        async def must(path: str, body: dict | bytes, method: str = "POST", may: tuple[int, ...] = ()) -> None:
            status, answer = await connection.post(path, body, method)
            if status != 200 and status not in may:
                self.wrong.append((path, body if isinstance(body, dict) else "a push", status, answer))

        while self.left > 0:
            turn += 1
            content = turn // 2 % 2
            if turn % TURNS_A_PAUSE == 0:
                await must("/pause?mode=keep", {})
            if turn % 2 == 0:
                await must("/v1/load_lora_adapter", {
                    "lora_name": REPLACED, "lora_path": CONTENTS[content], "load_inplace": True})
            else:
                self.versions[f"turn-{turn}"] = content
                # Old versions that requests use may fill the memory.
                await must(f"/v1/adapters/{REPLACED}?version=turn-{turn}", pushed[content], "PUT", may=(429,))
            if turn % TURNS_A_PAUSE == 0:
                await must("/resume", {})
            name = rng.choice(ADAPTERS)
            # Requests for it may fail until it is there again.
            self.gone.add(name)
            await must("/v1/unload_lora_adapter", {"lora_name": name})
            await must("/v1/load_lora_adapter", {"lora_name": name, "lora_path": name})
            self.count("loads")
        for name in ADAPTERS + ALONE_ONLY + [REPLACED]:
            await must("/v1/unload_lora_adapter", {"lora_name": name})
        connection.close()

    async def attacker(self, seed: int) -> None:
        """One attack after the other, from another address than the clients'."""
        rng = random.Random(f"attacker {seed}")
        while self.left > 0:
            attack = rng.choice(soak_attacks.ATTACKS)
            self.attacking[seed] = attack.__name__
            try:
                outcome = await asyncio.wait_for(attack(rng, self.server.port, KEY),
                                                 MAX_ATTACK_SECONDS if self.options.timed else None)
            except TimeoutError:
                self.wrong.append((attack.__name__, f"neither answer nor end in {MAX_ATTACK_SECONDS} s"))
                outcome = "hung"
            self.count(f"{attack.__name__} {outcome}")
        del self.attacking[seed]

    async def watch(self) -> None:
        """Reports progress, notes the resident memory of the last third, and ends the soak where nothing moves."""
        begin = moved = time.monotonic()
        told = finished = 0
        while self.finished < self.options.requests:
            now = time.monotonic()
            if self.finished > finished:
                finished, moved = self.finished, now
            assert now - moved < WAIT_SECONDS, (f"waited {WAIT_SECONDS} s for the next answer of {self.options.clients} clients, "
                                                f"{finished} have ended; attacks that wait: {self.attacking}")
            if finished >= told + PROGRESS:
                told = finished - finished % PROGRESS
                print(f"{finished} of {self.options.requests} requests after {now - begin:.0f} s,",
                      f"{len(self.wrong)} wrong, resident {self.server.resident() >> 20} MiB", flush=True)
            if finished > self.options.requests // 3:
                self.resident.append(self.server.resident())
            await asyncio.sleep(10 * LOOK_SECONDS)

    async def run(self) -> None:
        attackers = [asyncio.create_task(self.attacker(seed))
                     for seed in range(self.options.attackers if self.options.attacks else 0)]
        await asyncio.gather(self.loader(), self.watch(), *(self.client(seed) for seed in range(self.options.clients)))
        if attackers:
            _, late = await asyncio.wait(attackers, timeout=LAST_ATTACKS_SECONDS)
            assert not late, f"waited {LAST_ATTACKS_SECONDS} s for the answers of attacks: {self.attacking}"
            for each in attackers:
                each.result()

    def check(self, before: dict[str, int], start_bytes: int) -> None:
        """Afterwards. `before`: what the server held before its first connection."""
        def left() -> dict[str, float]:
            metrics = self.server.sums()
            return {name: metrics["motley_" + name] for name in NOTHING_LEFT if metrics["motley_" + name] != 0}

        print(self.counts)
        for each in self.wrong[:5]:
            print("wrong:", *each, sep="\n  ")
        assert not self.wrong, f"{len(self.wrong)} answers are not what they are alone"
        until("requests and adapters to be gone", lambda: not left(), left)
        until(f"threads and open files as before, {before}", lambda: self.server.held() == before, self.server.held)
        metrics = self.server.sums()
        print({name: int(metrics[f"motley_{name}_total"]) for name in (
            "generated_tokens", "preemptions", "adapter_loads", "adapter_evictions", "steps")})
        assert metrics["motley_broken_invariants_total"] == 0
        assert metrics["motley_adapter_evictions_total"] > 0, "adapters had too much room"
        if self.options.timed:
            self.check_resident(start_bytes)

    def check_resident(self, start_bytes: int) -> None:
        growth = 0
        if seen := self.resident:
            growth = max(seen[len(seen) // 2:]) - max(seen[:len(seen) // 2 + 1])
        print(f"resident {self.server.resident() >> 20} MiB, last third {growth >> 10} KiB more")
        if not self.options.attacks:
            assert growth <= MAX_GROWTH, f"{growth} bytes more than before"
            return
        # What attacks took comes back.
        until("resident memory to go back", lambda: self.server.resident() - start_bytes <= MAX_MEMORY_LEFT,
              lambda: f"{self.server.resident() - start_bytes} bytes more than at the start")


async def answers_alone(options, folder: Path, bodies: list) -> tuple[list, dict[str, int]]:
    """Each request's answers from one engine, one after the other, with memory for everything; several where the
    content of its adapter changes, whose versions are returned, too."""
    server = Server(options, folder, "16M", "64M")
    connection, alone, versions = Connection(server.port), [[] for _ in bodies], {}
    for turn, content in enumerate(CONTENTS):
        await connection.post("/v1/load_lora_adapter", {
            "lora_name": REPLACED, "lora_path": content, "load_inplace": True})
        for body, answers in zip(bodies, alone):
            if turn > 0 and body["model"] != REPLACED:
                continue
            status, choices = await connection.complete(body)
            assert status == 200, (body, status, choices)
            answers.append(choices)
            if body["model"] == REPLACED:
                versions[connection.version] = turn
    connection.close()
    assert server.end() == 0, server.last_lines()
    server.close()
    return alone, versions


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("motley", type=lambda path: Path(path).resolve())
    parser.add_argument("golden", type=Path)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--kinds", type=int, default=160, help="requests that differ")
    parser.add_argument("--clients", type=int, default=48)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compute", default="f32")
    parser.add_argument("--dp", type=int, default=1, help="replicas")
    parser.add_argument("--tp", type=int, default=1, help="ranks, also of the answers alone")
    parser.add_argument("--ep", type=int, default=1, help="groups of experts")
    parser.add_argument("--batch-invariant", action="store_true")
    parser.add_argument("--tolerance", type=float, default=0, help="of log-probabilities")
    parser.add_argument("--attacks", action="store_true", help="hostile requests beside and between")
    parser.add_argument("--attackers", type=int, default=2, help="that attack at once")
    parser.add_argument("--timed", action="store_true", help="judges resident memory and the times of attacks")
    options = parser.parse_args()
    rng = random.Random(1)
    bodies = [request_body(rng, index) for index in range(options.kinds)]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "tiny"
        tiny_model.make(options.golden, folder)
        begin = time.monotonic()
        alone, versions = asyncio.run(answers_alone(options, folder, bodies))
        middle = time.monotonic()
        server = Server(options, folder, LEAST_KV, LEAST_ADAPTERS, options.dp)
        try:
            before, start_bytes = server.held(), server.resident()
            soak = Soak(options, server, bodies, alone, versions)
            asyncio.run(soak.run())
            soak.check(before, start_bytes)
            status = server.end()
            assert status == 0, f"status {status}"
        except BaseException:
            print(server.last_lines(40))
            raise
        finally:
            server.close()
        print(f"alone {middle - begin:.1f} s, together {time.monotonic() - middle:.1f} s")


if __name__ == "__main__":
    main()
