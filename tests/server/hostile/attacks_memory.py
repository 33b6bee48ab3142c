"""No memory left: an answer or a closed connection, and a server that serves on."""

import json
import resource
from pathlib import Path

from attacker import Attacker
from harness import Attack
from processes import MEGABYTE

LONGEST = 6  # seconds that a client waits for its answer, or for the end of its connection
UNLIMITED = resource.RLIM_INFINITY


def address_space(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmSize:")[1].split()[0]) << 10


def requests_for_much(attacker: Attacker) -> None:
    body = json.dumps({"model": "base", "prompt": "word " * 2500000, "max_tokens": 1}).encode()
    echo = dict(prompt=[[7] * 1000] * 2, n=64, echo=True, logprobs=20, max_tokens=0, temperature=1)
    schema = {"type": "object", "properties": {f"p{index}": {} for index in range(300)}}
    attacker.all_at_once([lambda: attacker.post("/v1/completions", body, LONGEST)] * 6
                         + [lambda: attacker.complete(LONGEST, **echo)] * 4
                         + [lambda: attacker.complete(LONGEST, guided_json=schema)] * 2
                         + [lambda: attacker.complete(LONGEST, prompt=["a"] * 20, n=100, temperature=1)] * 2
                         + [lambda: attacker.load("scarce", "scripture"), lambda: attacker.unload("scarce")] * 2, 16)


def out_of_memory(attacker: Attacker) -> None:
    """With less and less memory above what a quiet server takes; each time it recovers."""
    quiet = address_space(attacker.pid)
    try:
        for room in (96, 8):
            resource.prlimit(attacker.pid, resource.RLIMIT_AS, (quiet + room * MEGABYTE, UNLIMITED))
            requests_for_much(attacker)
            resource.prlimit(attacker.pid, resource.RLIMIT_AS, (UNLIMITED, UNLIMITED))
            served = attacker.wait_for(lambda: attacker.complete().status == 200, 10)
            attacker.expect(served, f"no answer after memory was short ({room} MB)")
    finally:
        resource.prlimit(attacker.pid, resource.RLIMIT_AS, (UNLIMITED, UNLIMITED))


ATTACKS = [
    # A closed connection (0) is an end, too.
    Attack("out_of_memory", out_of_memory, frozenset({0, 200, 400, 404, 413, 429, 503, "left"}), neighbours_judged=False,
           once=True, in_sanitized=False, in_rounds=False),
]
