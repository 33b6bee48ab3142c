"""Load of every kind on `motley serve`, with memory that is too small: each answer that is finished equals the one that its
request gets alone; no thread, descriptor, sequence, page or adapter is left at the end.

soak_test.py MOTLEY GOLDEN [--requests N] [--attacks] [--timed] [--device cuda] [--dp D] [--tp N] [--ep E] ...

With --timed the resident memory and the times of attacks are judged, too; that needs a machine without other work.
"""

import argparse
import asyncio
import os
import random
import re
import tempfile
import time
from pathlib import Path

import soak_attacks
import tiny_model
from server_process import LOOK_SECONDS, WAIT_SECONDS, ServerProcess, until
from soak_client import KEY, Connection
from soak_requests import ADAPTERS, ALONE_ONLY, CONTENTS, SWITCHED, Answer, Asked, request
from soak_trainer import Trainer

LEAST_KV = "500K"  # one sequence of the longest, or a dozen short ones
LEAST_ADAPTERS = "2M"
# What numbers say of requests and adapters that have gone, a moment after the last answer.
NOTHING_LEFT = ["kv_pages_used", "adapters", "push_memory_bytes", "adapter_memory_pages_pinned", "sequences_running", "sequences_waiting"]
MAX_MEMORY_LEFT = 100 << 20
MAX_GROWTH = 8 << 20  # of resident memory in the last third
# With --timed: until an attack has ended, and until a request is accepted that was refused for the moment.
MAX_ATTACK_SECONDS = 120
MAX_REFUSED_SECONDS = 10
# Without: where more answers than these are missing at the end, something hangs.
LAST_ATTACKS_SECONDS = 300
RETRY_SECONDS = 0.05
PROGRESS = 2000  # requests between two lines about it


class Server(ServerProcess):
    def __init__(self, options, folder: Path, kv: str, adapter_memory: str, replicas: int = 1):
        self.folder = folder
        names = [f"{name}={folder}/adapters/{name}" for name in ADAPTERS + ALONE_ONLY]
        names += [f"{name}={folder}/adapters/{contents[0]}" for name, contents in CONTENTS.items()]
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


class Soak:
    def __init__(self, options, server: Server, asked: list[Asked], alone: list[dict], versions: dict[str, str]):
        self.options, self.server, self.asked, self.alone = options, server, asked, alone
        self.versions = versions  # by name, of what has several: the content
        self.named_by_content = set(versions)
        self.left, self.counts, self.wrong, self.gone = options.requests, {}, [], set()
        self.under_way: set[str] = set()  # ids of requests
        self.finished = 0  # requests of clients
        self.trainer = Trainer(self, options.seed)
        self.attacking: dict[int, str] = {}  # by attacker
        self.resident: list[int] = []

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    async def client(self, seed: int) -> None:
        rng, connection = random.Random(f"client {seed} of {self.options.seed}"), Connection(self.server.port)
        while self.left > 0:
            self.left -= 1
            which = rng.randrange(len(self.asked))
            asked, more = self.asked[which], {"stream": rng.randrange(2) == 1, "request_id": f"{seed}-{self.left}"}
            way = rng.randrange(20)
            if way == 0:
                # Gone before the answer, at any time.
                await connection.send(asked.path, asked.body | more)
                await asyncio.sleep(rng.random() * 0.02)
                connection.close()
                self.count("gone")
            elif way == 1:
                # Gone in the middle of it.
                await connection.send(asked.path, asked.body | more | {"stream": True})
                status, _ = await connection.head()
                if status == 200:
                    await connection.reader.readline()
                connection.close()
                self.count("cut")
            else:
                self.under_way.add(more["request_id"])
                answer = await self.answer(connection, asked, more)
                self.under_way.remove(more["request_id"])
                self.judge(which, asked, answer)
            self.finished += 1
        connection.close()

    async def answer(self, connection: Connection, asked: Asked, more: dict) -> Answer:
        """Asks again where the server says so: in a pause, or where an attack has taken the memory."""
        most = MAX_REFUSED_SECONDS if self.options.timed and self.options.attacks else WAIT_SECONDS
        for _ in range(int(most / RETRY_SECONDS)):
            answer = await connection.answer(asked, **more)
            if answer.status not in (429, 503) or (answer.status == 429 and not self.options.attacks):
                break
            self.count("told to come again")
            await asyncio.sleep(RETRY_SECONDS)
        return answer

    def judge(self, which: int, asked: Asked, answer: Answer) -> None:
        if answer.status == 404 and any(name in self.gone for name in asked.names()):
            return self.count("unloaded")
        verdict = self.verdict(self.alone[which], asked, answer)
        if verdict not in ("equal", "aborted", "switched"):
            self.wrong.append((asked, verdict, answer, self.alone[which]))
            verdict = "wrong"
        self.count(verdict)

    def verdict(self, alone: dict[str, Answer], asked: Asked, answer: Answer) -> str:
        if answer.status != 200 or answer.error:
            return "an error"
        if "" in alone:
            return self.verdict_of_one(alone[""], answer)
        # Of contents that come and go, those that the answer names.
        versions = answer.versions()
        if unknown := [version for version in versions if version not in self.versions]:
            return f"unknown versions {unknown}"
        if len(versions) > 1:
            return self.verdict_of_switched(alone[self.versions[versions[0]]], asked, answer)
        if versions:
            return self.verdict_of_one(alone[self.versions[versions[0]]], answer)
        # Aborted before it had begun.
        begun = any(choice.finish != "abort" or choice.tokens for choice in answer.choices)
        return "an answer without a version" if begun else "aborted"

    def verdict_of_one(self, whole: Answer, answer: Answer) -> str:
        tolerance = self.options.tolerance
        for got, wanted in zip(answer.choices, whole.choices, strict=True):
            right = got.begins(wanted, tolerance) if got.finish == "abort" else got.equals(wanted, tolerance)
            if not right:
                return "not the answer alone"
        return "aborted" if any(choice.finish == "abort" for choice in answer.choices) else "equal"

    def verdict_of_switched(self, whole: Answer, asked: Asked, answer: Answer) -> str:
        """Up to the first switch the answer is that of its first version alone. A version that is named by its content may
        have come twice, before the first token as well; others come once."""
        if asked.body["model"] != SWITCHED:
            return "several versions, where running requests end with what they began with"
        for got, wanted in zip(answer.choices, whole.choices, strict=True):
            if wrong := got.wrong_spans(answer.versions()):
                return wrong
            first = got.spans[0] if got.spans else None
            if first is None or first["version"] != answer.versions()[0] or first["version"] in self.named_by_content:
                continue
            if got.tokens[:first["end"]] != wanted.tokens[:first["end"]]:
                return f"its first {first['end']} tokens are not those of {first['version']} alone"
        return "switched"

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
                                                f"{finished} have ended; attacks that wait: {self.attacking}; the trainer's calls: "
                                                f"{self.trainer.last_calls}")
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
        await asyncio.gather(self.trainer.run(), self.watch(), *(self.client(seed) for seed in range(self.options.clients)))
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


async def answers_alone(options, folder: Path, asked: list[Asked]) -> tuple[list[dict], dict[str, str]]:
    """Each request's answers from one engine, one after the other, with memory for everything, by the content of an adapter
    whose content changes; and the contents by their versions."""
    server = Server(options, folder, "16M", "64M")
    connection, alone, versions = Connection(server.port), [{} for _ in asked], {}
    for turn in range(2):
        for name, contents in CONTENTS.items():
            await connection.ask("/v1/load_lora_adapter", {
                "lora_name": name, "lora_path": contents[turn], "load_inplace": True})
        for each, answers in zip(asked, alone):
            contents = each.contents()
            if turn == len(contents):
                continue
            answer = answers[contents[turn]] = await connection.answer(each)
            assert answer.status == 200 and not answer.error, (each, answer)
            if len(contents) > 1:
                versions[answer.version] = contents[turn]
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
    parser.add_argument("--seed", type=int, default=1, help="of what is asked, by whom, and of what the trainer does")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    rng = random.Random(options.seed)
    asked = [request(rng, index) for index in range(options.kinds)]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "tiny"
        tiny_model.make(options.golden, folder)
        begin = time.monotonic()
        alone, versions = asyncio.run(answers_alone(options, folder, asked))
        middle = time.monotonic()
        server = Server(options, folder, LEAST_KV, LEAST_ADAPTERS, options.dp)
        try:
            before, start_bytes = server.held(), server.resident()
            soak = Soak(options, server, asked, alone, versions)
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
