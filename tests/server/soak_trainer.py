"""What a trainer does while the soak's clients ask: pushes, replacements, races, pauses, aborts, unloads, in an order that
follows from the seed."""

import asyncio
import json
import random
from collections import deque
from pathlib import Path

from server_process import LOOK_SECONDS
from soak_client import Connection
from soak_requests import ADAPTERS, ALONE_ONLY, CONTENTS, REPLACED, SWITCHED

RACERS = 4
PAUSES = 3  # one turn of so many is in a pause
NO_ROOM = (429,)  # old versions that requests use may fill the memory, or have the name that is unloaded


def pushed_body(folder: Path) -> bytes:
    """An adapter's files as one safetensors body."""
    file = (folder / "adapter_model.safetensors").read_bytes()
    begin = 8 + int.from_bytes(file[:8], "little")
    header = json.loads(file[8:begin])
    header["__metadata__"] = {"adapter_config": (folder / "adapter_config.json").read_text()}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + file[begin:]


class Trainer:
    def __init__(self, soak, seed: int):
        self.soak, self.rng = soak, random.Random(f"trainer {seed}")
        self.connection = Connection(soak.server.port)
        self.folder = soak.server.folder / "adapters"
        self.bodies = {content: pushed_body(self.folder / content) for both in CONTENTS.values() for content in both}
        self.turns = 0
        self.last_calls = deque(maxlen=6)
        self.does = [self.push, self.push, self.push_path, self.load, self.load, self.update_in_flight, self.race, self.race,
                     self.delete_and_push, self.unload_and_load, self.unload_and_load, self.abort, self.reset]

    async def run(self) -> None:
        while self.soak.left > 0:
            self.turns += 1
            pause = await self.pause() if self.rng.randrange(PAUSES) == 0 else None
            for does in self.rng.sample(self.does, k=self.rng.randint(1, 2)):
                await does()
                self.soak.count(f"trainer: {does.__name__}")
            if pause is not None:
                await self.must("/resume", pause)
        while self.soak.finished < self.soak.options.requests:  # some are asked again
            await asyncio.sleep(LOOK_SECONDS)
        for name in ADAPTERS + ALONE_ONLY + [REPLACED, SWITCHED]:
            await self.must("/v1/unload_lora_adapter", {"lora_name": name})
        self.connection.close()

    async def must(self, path: str, body: dict | bytes | None = None, method: str = "POST", may: tuple[int, ...] = (),
                   connection: Connection | None = None) -> tuple[int, dict | str]:
        """A call that may get 200 and these statuses."""
        shown = "a push" if isinstance(body, bytes) else body
        self.last_calls.append(f"{method} {path} {shown}")
        status, answer = await (connection or self.connection).ask(path, body, method)
        if status != 200 and status not in may:
            self.soak.wrong.append((f"{method} {path}", shown, status, answer))
        return status, answer

    async def must_in_time(self, path: str, body: dict | bytes, method: str = "POST") -> None:
        """Again until requests of old contents have ended, of which some may stand still."""
        while (await self.must(path, body, method, NO_ROOM))[0] in NO_ROOM:
            for paused in ({}, {"lora_name": REPLACED}, {"lora_name": SWITCHED}):
                await self.must("/resume", paused)
            await asyncio.sleep(LOOK_SECONDS)

    def next_version(self, content: str, form: str = "turn-{}") -> str:
        """A name that no version has had; which content it is of."""
        version = form.format(f"{self.turns}-{len(self.soak.versions)}")
        self.soak.versions[version] = content
        return version

    def any_content(self) -> tuple[str, str, str]:
        """A name whose content changes, one of its contents, and what running requests do."""
        name = self.rng.choice((REPLACED, SWITCHED))
        return name, self.rng.choice(CONTENTS[name]), "switch" if name == SWITCHED else "finish"

    async def pause(self) -> dict:
        mode = self.rng.choice(("abort", "wait", "keep", "keep"))
        pause = self.rng.choice(({}, {"lora_name": SWITCHED}, {"lora_name": REPLACED}))
        await self.must("/pause", pause | {"mode": mode, "clear_cache": self.rng.random() < 0.5})
        self.soak.count(f"trainer: pause {mode}{' of one' if pause else ''}")
        return pause

    async def push(self) -> None:
        name, content, rule = self.any_content()
        version = self.next_version(content)
        await self.must(f"/v1/adapters/{name}?version={version}&on_replace={rule}", self.bodies[content], "PUT", NO_ROOM)

    async def push_path(self) -> None:
        name, content, rule = self.any_content()
        body = {"path": str(self.folder / content), "version": self.next_version(content), "on_replace": rule}
        await self.must(f"/v1/adapters/{name}", body, "PUT", NO_ROOM)

    async def load(self) -> None:
        """In place, by vLLM's route or by SkyRL's. The version is the content's hash, which is known."""
        name, content, rule = self.any_content()
        route = self.rng.choice(("/v1/load_lora_adapter", "/skyrl/v1/load_lora_adapter"))
        await self.must(route, {"lora_name": name, "lora_path": content, "load_inplace": True, "on_replace": rule})

    async def update_in_flight(self) -> None:
        content = self.rng.choice(CONTENTS[SWITCHED])
        version = self.next_version(content, "step-{}@" + str(self.turns))
        await self.must("/art/in_flight_lora_update", {
            "operation_id": version, "model_name": f"{SWITCHED}@{self.turns}", "lora_slot": SWITCHED,
            "lora_path": str(self.folder / content), "generation_id": version.split("@")[0], "policy_version": self.turns},
            may=NO_ROOM)

    async def race(self) -> None:
        """Of several pushes on top of one version exactly one is done, if there is room for any."""
        name, _, rule = self.any_content()
        present = (await self.must(f"/v1/adapters/{name}", method="GET"))[1]["version"]
        racers = [Connection(self.soak.server.port) for _ in range(RACERS)]
        contents = [self.rng.choice(CONTENTS[name]) for _ in racers]
        versions = [self.next_version(content) for content in contents]
        answers = await asyncio.gather(*(
            self.must(f"/v1/adapters/{name}?version={version}&expected_version={present}&on_replace={rule}",
                      self.bodies[content], "PUT", (409,) + NO_ROOM, racer)
            for racer, version, content in zip(racers, versions, contents)))
        for racer in racers:
            racer.close()
        done = [version for version, (status, _) in zip(versions, answers) if status == 200]
        now = (await self.must(f"/v1/adapters/{name}", method="GET"))[1]["version"]
        refused = any(status in NO_ROOM for status, _ in answers)
        right = [now] == done if done else refused and now == present
        if not right:
            self.soak.wrong.append((f"a race on top of {present}", answers, now))

    async def delete_and_push(self) -> None:
        name, content, _ = self.any_content()
        self.soak.gone.add(name)
        await self.must(f"/v1/adapters/{name}", method="DELETE")
        version = self.next_version(content)
        await self.must_in_time(f"/v1/adapters/{name}?version={version}&expected_version=", self.bodies[content], "PUT")

    async def unload_and_load(self) -> None:
        name = self.rng.choice(ADAPTERS)
        # Requests for it may fail until it is there again.
        self.soak.gone.add(name)
        await self.must("/v1/unload_lora_adapter", {"lora_name": name})
        await self.must_in_time("/v1/load_lora_adapter", {"lora_name": name, "lora_path": name})

    async def abort(self) -> None:
        ids = sorted(self.soak.under_way)
        chosen = self.rng.sample(ids, k=min(len(ids), self.rng.randint(1, 4)))
        if chosen:
            await self.must("/abort_requests", {"request_ids": chosen})

    async def reset(self) -> None:
        await self.must("/reset_prefix_cache", {"reset_running_requests": self.rng.random() < 0.5})
