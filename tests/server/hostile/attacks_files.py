"""Weights and adapters that change under the server, overflow, or are no adapters at all."""

import json
import os
import re
import shutil
import struct
import threading
import time
from pathlib import Path

from attacker import Attacker
from harness import Attack, Judgement
from processes import MEGABYTE, Launch, Server, until

LARGE = {"F32": struct.pack("<f", 4e37), "BF16": struct.pack("<f", 4e37)[2:], "F16": struct.pack("<e", 6e4)}


def overflowing_copy(source: Path, target: Path) -> None:
    """An adapter whose values are finite and whose products are not."""
    shutil.copytree(source, target)
    path = target / "adapter_model.safetensors"
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header, data = json.loads(content[8:8 + size]), bytearray(content[8 + size:])
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            value = LARGE[entry["dtype"]]
            data[begin:end] = value * ((end - begin) // len(value))
    path.write_bytes(content[:8 + size] + bytes(data))


def prepare_overflow(folder: Path, launch: Launch, timed: bool) -> None:
    overflowing_copy(folder / "adapters" / "fortune", folder / "adapters" / "overflowing")


def overflowing_adapter(attacker: Attacker) -> None:
    """Its requests end with an error that names it, and are counted by its name."""
    if attacker.load("overflowing", "overflowing").status not in (200, 400):
        attacker.fail("an adapter that overflows does not load")
    answers = attacker.all_at_once(
        [lambda: attacker.complete(model="overflowing", max_tokens=8),
         lambda: attacker.complete(model="overflowing", max_tokens=8, temperature=1, seed=1, n=4),
         lambda: attacker.complete(model="overflowing", max_tokens=8, logprobs=5),
         lambda: attacker.complete(model="overflowing", prompt="a few words", max_tokens=0, echo=True, logprobs=5),
         lambda: attacker.complete(adapters=[{"name": "overflowing", "scale": 2}], guided_regex="[a-z]+")] * 4)
    for answer in answers:
        attacker.expect(answer.status >= 400 and "overflowing" in answer.text(),
                        f"an answer that is no number: {answer.status} {answer.text()[:120]}")
    streamed = attacker.complete(model="overflowing", max_tokens=8, stream=True)
    attacker.expect('"error"' in streamed.text() and "overflowing" in streamed.text(),
                    f"streamed: {streamed.text()[:120]}")
    counted = attacker.wait_for(
        lambda: any("finite" in name and '"overflowing"' in name and value > 0
                    for name, value in attacker.metrics().items()), attacker.patience)
    attacker.expect(counted, "no metric counts what was not finite by adapter")
    attacker.unload("overflowing")


def weights_of(attacker: Attacker) -> Path:
    return attacker.folder / "model" / "model.safetensors"


def gone_or_unhealthy(attacker: Attacker) -> None:
    """The server says that its weights are not what they were."""
    noticed = attacker.wait_for(lambda: attacker.health() != 200, 8)
    attacker.expect(noticed, "/health goes on saying that all is well")
    attacker.count(attacker.health() or "ended")


def cut_weights(attacker: Attacker) -> None:
    os.truncate(weights_of(attacker), 100000)
    gone_or_unhealthy(attacker)


def overwritten_weights(attacker: Attacker) -> None:
    with open(weights_of(attacker), "r+b") as file:
        file.seek(2 * MEGABYTE)
        file.write(os.urandom(4 * MEGABYTE))
    gone_or_unhealthy(attacker)


def said_which_file(verdict: Judgement, server: Server) -> None:
    def naming() -> list[str]:
        return [line for line in server.log_text().splitlines() if "model.safetensors" in line]

    try:
        lines = until("a line of the log that names the file that changed", naming, server.last_lines)
    except AssertionError as error:
        return verdict.fail(str(error))
    verdict.notes.append(f"log: {lines[-1][:160]}")
    if len(lines) > 6:
        verdict.fail(f"{len(lines)} lines say so")
    if not server.alive() and server.process.returncode < 0:
        verdict.fail(f"ended by signal {-server.process.returncode}")


def copied_weights(attacker: Attacker) -> None:
    """With --copy-weights neither matters; neighbours' answers stay exact."""
    with open(weights_of(attacker), "r+b") as file:
        file.seek(2 * MEGABYTE)
        file.write(os.urandom(4 * MEGABYTE))
    time.sleep(attacker.pause(0.5, 0))
    os.truncate(weights_of(attacker), 100000)
    time.sleep(attacker.pause(1.5, 0))  # the watch would look
    answers = [attacker.complete(prompt=f"word {index}").status for index in range(4)]
    attacker.expect(answers == [200] * 4, f"answers from copied weights: {answers}")
    attacker.count(attacker.health())


def changed_adapter(attacker: Attacker) -> None:
    """One that is changed, one that is deleted, after they have left memory."""
    for name in ("changed", "deleted"):
        if not attacker.adapter(name).exists():
            shutil.copytree(attacker.adapter("fortune"), attacker.adapter(name))
        answer = attacker.load(name, name)
        attacker.expect(answer.status == 200, f"{name}: {answer.text()[:200]}")
        attacker.complete(model=name)
    for name in ("scripture", "record"):
        attacker.load(name, name)
    path = attacker.adapter("changed") / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    shutil.rmtree(attacker.adapter("deleted"))
    before = evictions(attacker)
    attacker.wait_for(lambda: attacker.complete(model="scripture").status and attacker.complete(model="record").status
                      and evictions(attacker) >= before + 2, 5)
    for name in ("changed", "deleted"):
        answer = attacker.complete(model=name)
        attacker.expect(answer.status == 503, f"{name}: {answer.status} {answer.text()[:200]}")
        attacker.expect(str(attacker.folder) not in answer.text() and ".safetensors" not in answer.text(),
                        f"{name}: the server's path leaves it: {answer.text()[:200]}")
    for name in ("changed", "deleted", "scripture", "record"):
        attacker.unload(name)
    shutil.rmtree(attacker.adapter("changed"))


def evictions(attacker: Attacker) -> float:
    return attacker.metrics().get("motley_adapter_evictions_total", 0)


PATTERNS = {
    # Each module is matched with each pattern, and each `.*` is one more place to go on from.
    "rank_pattern": {".*" * 200 + str(index): 8 for index in range(2000)},
    "alpha_pattern": {".*" * 200 + str(index): 8 for index in range(2000)},
    "target_modules": ".*" * 50000,
    "exclude_modules": "(.*.*.*)*" * 50,
    "target_parameters": [f"mlp.experts.{index}" for index in range(100000)],
    "layers_pattern": ["(.*)*"] * 2000,
}


def hostile_patterns(attacker: Attacker) -> None:
    """Thousands of patterns in an adapter's configuration: refused or read; a search that tries all ways never ends."""
    for field, value in PATTERNS.items():
        folder = attacker.adapter("patterns")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(attacker.adapter("fortune"), folder)
        config = json.loads((folder / "adapter_config.json").read_text()) | {field: value}
        (folder / "adapter_config.json").write_text(json.dumps(config))
        began = time.monotonic()
        answer = attacker.load("patterns", "patterns")
        took = time.monotonic() - began
        attacker.expect(took < attacker.within(3), f"{field}: {took:.1f} s for a load")
        if answer.status == 200:
            attacker.unload("patterns")


def odd_files(attacker: Attacker) -> None:
    """Folders that hold no adapter: pipes, devices, links out of the root, holes of a terabyte."""
    root = attacker.folder / "adapters"
    shutil.rmtree(root / "odd", ignore_errors=True)
    kinds = ("pipe", "hole", "zeros", "deep", "long", "folder", "empty", "config_pipe")
    for kind in kinds:
        shutil.copytree(root / "fortune", root / "odd" / kind)
        (root / "odd" / kind / "adapter_model.safetensors").unlink()
    os.mkfifo(root / "odd/pipe/adapter_model.safetensors")
    (root / "odd/hole/adapter_model.safetensors").touch()
    os.truncate(root / "odd/hole/adapter_model.safetensors", 1 << 40)
    (root / "odd/zeros/adapter_model.safetensors").symlink_to("/dev/zero")
    (root / "odd/deep/adapter_config.json").write_text("[" * 1000000)
    (root / "odd/long/adapter_config.json").write_text(json.dumps({"r": 8, "x": "y" * 30 * MEGABYTE}))
    (root / "odd/folder/adapter_model.safetensors").mkdir()
    (root / "odd/empty/adapter_model.safetensors").touch()
    (root / "odd/config_pipe/adapter_config.json").unlink()
    os.mkfifo(root / "odd/config_pipe/adapter_config.json")
    (root / "odd/out").symlink_to("/etc")
    paths = [f"odd/{kind}" for kind in kinds] + [
        "odd/out", "../..", "/etc", "/proc/self/root/etc", "fortune/../../..", "a" * 100000, "", ".", "\x00", "fortune\x00/x"]
    for path, answer in zip(paths, attacker.all_at_once(
            [lambda p=path, i=index: attacker.load(f"odd_{i}", p) for index, path in enumerate(paths)], 6)):
        attacker.expect(answer.status in (400, 404, 413), f"{path[:40]!r}: {answer.status} {answer.text()[:100]}")
        attacker.expect("root:" not in answer.text(), f"{path[:40]!r}: {answer.text()[:100]}")


def names_in_metrics(attacker: Attacker) -> None:
    """Adapters' names that would write lines or labels of their own into /metrics."""
    names = ['a"} 1\nmotley_forged 1\n', 'a"', "a\\", "a{b}", "a b", "ä", "", "x" * 201, "a:b", "a=b", "base", "../a"]
    for name in names:
        answer = attacker.load(name, "fortune")
        if answer.status == 200:
            attacker.complete(model=name)
            attacker.unload(name)
    attacker.load("x/" * 99 + "x", "fortune")
    attacker.complete(model="x/" * 99 + "x")
    text = attacker.ask("GET", "/metrics").text()
    line_form = re.compile(r'[a-zA-Z_:][a-zA-Z0-9_:]*(\{([a-zA-Z_][a-zA-Z0-9_]*="(\\["\\n]|[^"\\\n])*",?)*\})? [-+0-9.eEinfINFNaN]+')
    for line in text.splitlines():
        attacker.expect(not line or line.startswith("#") or line_form.fullmatch(line) is not None, f"metrics: {line[:120]!r}")
        attacker.expect("motley_forged" not in line.split("{")[0], f"a name forged a metric: {line[:120]!r}")
    attacker.unload("x/" * 99 + "x")


def storms_of_loads(attacker: Attacker) -> None:
    """Loads, replacements and unloads by four clients, beside requests for what they move."""
    moving = threading.Semaphore(0)
    loads = attacker.few(24)

    def mover(index: int) -> None:
        name, sources = f"moved_{index}", ("fortune", "scripture", "record", "jargon")
        for turn in range(loads):
            attacker.load(name, sources[turn % 4], load_inplace=True)
            if turn % 3 == 2:
                attacker.unload(name)
        moving.release()

    def user(index: int) -> None:
        while not moving.acquire(blocking=False):
            attacker.complete(model=f"moved_{index % 4}", max_tokens=6)
        moving.release()

    threads = [threading.Thread(target=mover, args=(index,)) for index in range(4)]
    threads += [threading.Thread(target=user, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index in range(4):
        attacker.unload(f"moved_{index}")


LOADS = frozenset({200, 400, 404, 409})
ATTACKS = [
    Attack("overflowing_adapter", overflowing_adapter, frozenset({200, 500}), before=prepare_overflow, once=True),
    Attack("cut_weights", cut_weights, frozenset({503, "ended"}), once=True, may_die=True,
           neighbours_judged=False, health_after=503, after=said_which_file, in_rounds=False),
    Attack("overwritten_weights", overwritten_weights, frozenset({503, "ended"}), once=True, may_die=True,
           neighbours_judged=False, health_after=503, after=said_which_file, in_rounds=False),
    Attack("copied_weights", copied_weights, frozenset({200}), needs="--copy-weights", once=True,
           launch=Launch(options=("--copy-weights",)), in_rounds=False),
    Attack("changed_adapter", changed_adapter, frozenset({200, 404, 503}), once=True,
           launch=Launch(options=("--adapter-memory", "4M"))),
    Attack("hostile_patterns", hostile_patterns, frozenset({200, 400, 413}), once=True),
    Attack("odd_files", odd_files, frozenset({400, 404, 413}), max_seconds=30),
    Attack("names_in_metrics", names_in_metrics, LOADS),
    Attack("storms_of_loads", storms_of_loads, LOADS),
]
