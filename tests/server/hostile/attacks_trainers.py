"""The routes of trainers: pushes that lie, drip or fill the disk, storms of swaps and pauses, wrong fields, wrong keys."""

import json
import subprocess
import threading
from pathlib import Path

from attacker import Attacker
from harness import Attack
from processes import MEGABYTE, Launch
from soak_trainer import pushed_body

KEYS = ("the-neighbours-key", "another-key")
PREY = "prey"  # an adapter that the attacks replace
DISK_ADAPTERS = 3  # so many and a half fit on the small disk
GENERATE = ("/inference/v1/generate", "/skyrl/v1/generate")
CHANGES = (("PUT", f"/v1/adapters/{PREY}"), ("DELETE", f"/v1/adapters/{PREY}"), ("POST", "/pause"), ("POST", "/resume"),
           ("POST", "/reset_prefix_cache"), ("POST", "/art/in_flight_lora_update"), ("POST", "/skyrl/v1/load_lora_adapter"),
           ("POST", "/skyrl/v1/unload_lora_adapter"))
READS = (("GET", "/v1/adapters"), ("GET", f"/v1/adapters/{PREY}"), ("GET", "/server_info"), ("GET", "/get_world_size"),
         ("GET", "/is_paused"), ("GET", "/art/state"), ("GET", "/art/capabilities"), ("POST", "/abort_requests"),
         *(("POST", route) for route in GENERATE))
OBJECTS = [*(path for method, path in CHANGES if method == "POST"), "/abort_requests", *GENERATE]


def body_of(attacker: Attacker, name: str = "fortune") -> bytes:
    return pushed_body(attacker.adapter(name))


def push(attacker: Attacker, body: bytes, query: str = "", name: str = PREY):
    headers = {name: value for name, value in attacker.headers.items() if name != "Content-Type"}
    return attacker.ask("PUT", f"/v1/adapters/{name}{query}", body, headers)


def delete(attacker: Attacker, name: str = PREY) -> None:
    attacker.ask("DELETE", f"/v1/adapters/{name}")


def said_by(attacker: Attacker, name: str = PREY) -> tuple:
    answer = attacker.complete(model=name).json()
    return answer.get("adapter_version"), [choice["text"] for choice in answer.get("choices", [])]


def put_head(attacker: Attacker, fields: str) -> bytes:
    key = f"Authorization: {attacker.headers['Authorization']}\r\n" if "Authorization" in attacker.headers else ""
    return f"PUT /v1/adapters/{PREY}?version=lie HTTP/1.1\r\nHost: 127.0.0.1:{attacker.port}\r\n{key}{fields}\r\n".encode()


def lies_of(attacker: Attacker, body: bytes) -> dict[str, bytes]:
    """Requests that are not what their heads say, and bodies that are not what their headers say."""
    def sized(text: bytes, length: int | None = None) -> bytes:
        return put_head(attacker, f"Content-Length: {len(text) if length is None else length}\r\n") + text

    def with_header(header: dict, data: bytes = b"") -> bytes:
        text = json.dumps(header).encode()
        return sized(len(text).to_bytes(8, "little") + text + data)

    config = json.loads((attacker.adapter("fortune") / "adapter_config.json").read_text())
    begin = 8 + int.from_bytes(body[:8], "little")
    header = json.loads(body[8:begin])
    first = next(name for name in header if name != "__metadata__")
    chunked = put_head(attacker, "Transfer-Encoding: chunked\r\n")
    json_head = "Content-Type: application/json\r\n"
    odd_paths = ["/etc", "../..", "/dev/zero", "/proc/self/mem", "\x00", "x" * 5000, "", 7, None, ["fortune"], {"path": "fortune"}]
    return {
        "shorter than it says": sized(body[:-10], len(body)),
        "longer than it says": sized(body, len(body) - 10),
        "more than all memory": put_head(attacker, f"Content-Length: {1 << 62}\r\n"),
        "a length that is no number": put_head(attacker, "Content-Length: many\r\n"),
        "a negative length": put_head(attacker, "Content-Length: -1\r\n"),
        "two lengths": put_head(attacker, "Content-Length: 5\r\nContent-Length: 6\r\n"),
        "nothing": sized(b""),
        "no header": sized(body[:7]),
        "a header of 2^63 bytes": sized((1 << 63).to_bytes(8, "little") + body[8:]),
        "a header longer than the body": sized(len(body).to_bytes(8, "little") + body[8:]),
        "a header that is no JSON": sized(body[:8] + b"\xff" * (begin - 8) + body[begin:]),
        "deep JSON": sized((100000).to_bytes(8, "little") + b"[" * 100000),
        "no configuration": with_header({name: entry for name, entry in header.items() if name != "__metadata__"}, body[begin:]),
        "an empty configuration": with_header(header | {"__metadata__": {"adapter_config": "{}"}}, body[begin:]),
        "another rank": with_header(
            header | {"__metadata__": {"adapter_config": json.dumps(config | {"r": 1 << 40})}}, body[begin:]),
        "offsets out of the file": with_header(header | {first: header[first] | {"data_offsets": [0, 1 << 60]}}, body[begin:]),
        "offsets that go back": with_header(header | {first: header[first] | {"data_offsets": [9, 1]}}, body[begin:]),
        "a shape of 2^80": with_header(header | {first: header[first] | {"shape": [1 << 40, 1 << 40]}}, body[begin:]),
        "an unknown type": with_header(header | {first: header[first] | {"dtype": "F4096"}}, body[begin:]),
        "NaN": sized(body[:begin] + b"\xff" * (len(body) - begin)),
        "chunks that end in the middle": chunked + b"10\r\n" + body[:16] + b"\r\n",
        "a chunk that lies": chunked + b"ffffffff\r\n" + body[:2000],
        "a chunk without a length": chunked + b"zz\r\n" + body[:2000],
        "a coding": put_head(attacker, f"Content-Encoding: gzip\r\nContent-Length: {len(body)}\r\n") + body,
        "JSON that is none": put_head(attacker, f"{json_head}Content-Length: 9\r\n") + b'{"path": ',
        "JSON that is long": put_head(attacker, f"{json_head}Content-Length: {40 * MEGABYTE}\r\n") + b" " * MEGABYTE,
    } | {
        f"path {path!r:.20}": put_head(attacker, f"{json_head}Content-Length: {len(text)}\r\n") + text
        for path in odd_paths for text in [json.dumps({"path": path}).encode()]}


def exchange_half(attacker: Attacker, sent: bytes) -> bytes:
    """The answer to bytes after which the client sends no more; without interim answers, which ask whether it is there."""
    came = b""
    with attacker.connect(attacker.within(10)) as connection:
        try:
            connection.sendall(sent)
            connection.shutdown(1)
            while piece := connection.recv(1 << 16):
                came += piece
        except OSError:
            pass
    return came.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")


def lying_pushes(attacker: Attacker) -> None:
    """Each is refused, and the old version serves on."""
    body = body_of(attacker)
    attacker.expect(push(attacker, body, "?version=true").status == 200, "a whole adapter is not taken")
    before = said_by(attacker)
    for label, sent in lies_of(attacker, body).items():
        came = exchange_half(attacker, sent)
        statuses = attacker.statuses_of(came)
        attacker.count((statuses or ["closed"])[0])
        attacker.expect(not statuses or 400 <= statuses[0] < 600, f"{label}: answered {statuses}")
        attacker.expect(b"root:" not in came and str(attacker.folder).encode() not in came, f"{label}: {came[-200:]!r}")
        attacker.expect(said_by(attacker) == before, f"{label}: the old version is not what it was: {said_by(attacker)}")
    delete(attacker)


def dripping_pushes(attacker: Attacker) -> None:
    """Many clients that send the beginning of a large adapter and then nothing; others push meanwhile."""
    body = body_of(attacker)
    push(attacker, body, "?version=true")
    before = said_by(attacker)
    held = []
    for index in range(attacker.few(60)):
        connection = attacker.connect()
        sent = put_head(attacker, f"Content-Length: {len(body)}\r\n") + body[:(1, 7, 100, len(body) // 2)[index % 4]]
        try:
            connection.sendall(sent)
        except OSError:  # refused by its head
            pass
        held.append(connection)
        attacker.count("held")
    attacker.expect(said_by(attacker) == before, "the old version does not serve while others push")
    status = push(attacker, body, "?version=next").status
    attacker.expect(status in (200, 429), f"a push next to slow ones: {status}")
    for connection in held:
        connection.close()
    delete(attacker)


def storms_of_swaps(attacker: Attacker) -> None:
    """Many clients push on top of one version: exactly one is done, each time."""
    bodies = [body_of(attacker, name) for name in ("fortune", "scripture")]
    push(attacker, bodies[0], "?version=round-0")
    present = "round-0"
    for turn in range(1, attacker.few(8) + 1):
        while True:
            answers = attacker.all_at_once([
                lambda at=at: push(attacker, bodies[at % 2], f"?version=round-{turn}-{at}&expected_version={present}")
                for at in range(16)])
            done = [answer.json()["version"] for answer in answers if answer.status == 200]
            if done or all(answer.status != 429 for answer in answers):
                break
        attacker.expect(len(done) == 1, f"{len(done)} pushes on top of {present} are done")
        attacker.expect(all(answer.json().get("error", {}).get("code") == "conflict" for answer in answers
                            if answer.status == 409), "a conflict without its code")
        now = attacker.ask("GET", f"/v1/adapters/{PREY}").json().get("version")
        attacker.expect([now] == done, f"{now} is there, and {done} was done")
        attacker.expect(said_by(attacker)[0] == now, f"answers are not of {now}")
        present = now
    delete(attacker)


def storms_of_pauses(attacker: Attacker) -> None:
    """Pauses of all modes, resumes, resets and aborts at once, of one adapter and its requests: each call is answered, and
    afterwards the adapter answers as before."""
    push(attacker, body_of(attacker), "?version=true")
    before = said_by(attacker)
    ended = threading.Event()

    def use(index: int) -> None:
        while not ended.is_set():
            attacker.complete(model=PREY, max_tokens=8, stream=index % 2 == 1, request_id=f"mine-{index}")

    def pause(at: int):
        return lambda: attacker.post(f"/pause?mode={('abort', 'wait', 'keep')[at % 3]}&lora_name={PREY}", b"")

    users = [threading.Thread(target=use, args=(index,)) for index in range(4)]
    for user in users:
        user.start()
    for _ in range(attacker.few(6)):
        attacker.all_at_once([call for at in range(9) for call in (
            pause(at), lambda: attacker.post("/resume", {"lora_name": PREY}),
            lambda at=at: attacker.post("/abort_requests", {"request_ids": [f"mine-{at % 4}", "x" * 5000, "\x00"] * 50}),
            lambda: attacker.post("/reset_prefix_cache", {"reset_running_requests": True}),
            lambda: attacker.post("/resume", {"lora_name": PREY}))])
        attacker.post("/resume", {"lora_name": PREY})
    ended.set()
    attacker.post("/resume", {"lora_name": PREY})
    for user in users:
        user.join()
    attacker.expect(said_by(attacker) == before, f"after the pauses: {said_by(attacker)}")
    delete(attacker)


WRONG = [b"", b"{", b"[]", b"7", b'"x"', b"null", b"\xff\xfe", b"[" * 100000, b'{"a": 1, "a": 2}', b'{"x": ' * 50000]
WRONG_FIELDS = {
    "/pause": [{"mode": 7}, {"mode": "sleep"}, {"mode": ["keep"]}, {"mode": "keep", "lora_name": 7}, {"clear_cache": "often"},
               {"mode": "keep", "lora_name": "nothing"}],
    "/resume": [{"lora_name": 7}, {"lora_name": ["x"]}],
    "/abort_requests": [{"request_ids": 7}, {"request_ids": [7]}, {"request_ids": {"a": "b"}}, {"request_ids": ["x"] * 500000}],
    "/reset_prefix_cache": [{"reset_running_requests": "maybe"}, {"reset_running_requests": 7}],
    "/art/in_flight_lora_update": [
        {"operation_id": "o", "model_name": "nothing@1", "lora_path": "fortune", "policy_version": 1},
        {"model_name": PREY, "lora_path": "fortune", "policy_version": -1},
        {"model_name": PREY, "lora_path": "fortune", "policy_version": 1 << 70}, {"model_name": "\x00", "lora_path": "x"},
        {"operation_id": "o" * 5000, "model_name": PREY, "lora_path": "fortune", "policy_version": 1}],
    "/skyrl/v1/load_lora_adapter": [{"lora_name": PREY, "lora_path": "/etc"}, {"lora_name": 7, "lora_path": 7}],
    "/skyrl/v1/unload_lora_adapter": [{"lora_name": "nothing"}, {"lora_name": None}, {}],
} | {route: [{"token_ids": ids, "sampling_params": {"max_tokens": 2}} for ids in (
        [], [-1], [1 << 40], [1.5], ["a"], "abc", {"a": 1}, None, [[1]], [1] * 1_000_000)] + [
        {"token_ids": [5], "sampling_params": wrong} for wrong in (
            7, [], "x", {"max_tokens": -1}, {"n": 1 << 40}, {"logprobs": 1 << 40}, {"logprobs": "all"}, {"temperature": "hot"},
            {"stop_token_ids": [1 << 40]}, {"prompt_logprobs": -7}, {"prompt_logprob_start": 1 << 60})]
     for route in GENERATE}


def wrong_fields_of_trainers(attacker: Attacker) -> None:
    """Bodies that are no JSON, no object, deep, or have fields of other types: refused by name, and nothing changes."""
    for route in OBJECTS:
        # An empty body asks for what a route does without parameters, which concerns others.
        bodies = [*WRONG[route in ("/pause", "/resume", "/reset_prefix_cache", "/abort_requests"):], *WRONG_FIELDS[route]]
        for body in bodies:
            if body == b"null" and route not in GENERATE:
                continue
            answer = attacker.post(route, body)
            shown = body[:40] if isinstance(body, bytes) else json.dumps(body)[:120]
            harmless = route in ("/abort_requests", "/resume") and answer.status == 200 and isinstance(body, dict)
            attacker.expect(400 <= answer.status < 500 or harmless, f"{route} {shown}: {answer.status} {answer.text()[:120]}")
            attacker.expect(harmless or "message" in answer.text() or "detail" in answer.text(), f"{route} {shown}: no message")
    for query in ("?include_dp=%00", "?include_dp=" + "x" * 4000, "?" + "a=b&" * 900, "?config_format=%ff", "?x=" + "y" * 90000):
        for path in ("/get_world_size", "/server_info", "/is_paused", "/v1/adapters"):
            attacker.ask("GET", path + query)
    paused = attacker.ask("GET", "/is_paused").json()
    attacker.expect(paused == {"is_paused": False, "paused_adapters": []}, f"something is paused: {paused}")


def keyless_trainers(attacker: Attacker) -> None:
    """Without a key, or with a wrong one, each route is 401, and a large body is not read for that."""
    for key in ("", "Bearer ", f"Bearer {KEYS[0]}x", "Bearer " + "x" * 4000):
        headers = {"Authorization": key} if key else {}
        for method, path in CHANGES + READS:
            body = None if method in ("GET", "DELETE") else b"{}"
            answer = attacker.ask(method, path, body, headers)
            attacker.expect(answer.status == 401, f"{method} {path} with {key[:20]!r}: {answer.status}")


def admin_keys(folder: Path, launch: Launch, timed: bool) -> None:
    (folder / "admin").write_text("the-trainers-key\n")
    launch.options += ("--admin-key-file", folder / "admin")


def users_as_trainers(attacker: Attacker) -> None:
    """With the key of a user, routes that change the server are 403; those that do not answer."""
    for method, path in CHANGES:
        body = None if method == "DELETE" else b"{}"
        answer = attacker.ask(method, path, body)
        attacker.expect(answer.status == 403, f"{method} {path}: {answer.status} {answer.text()[:120]}")
    big = put_head(attacker, f"Content-Length: {64 * MEGABYTE}\r\nExpect: 100-continue\r\n")
    attacker.expect(attacker.statuses_of(attacker.exchange(big)) == [403], "a large body of a user is asked for")


def small_disk(folder: Path, launch: Launch, timed: bool) -> None:
    size = len(pushed_body(folder / "adapters" / "fortune"))
    (folder / "disk").mkdir()
    launch.options += ("--push-dir", folder / "disk")
    launch.small_disk = (folder / "disk", DISK_ADAPTERS * size + size // 2)


def may_mount() -> bool:
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


def full_disk(attacker: Attacker) -> None:
    """Pushes until the disk is full: refused, what is there serves on, and there is room again after a delete."""
    body = body_of(attacker)
    names = [f"{PREY}-{index}" for index in range(DISK_ADAPTERS)]
    for name in names:
        attacker.expect(push(attacker, body, "?version=one", name).status == 200, f"{name} does not fit")
    before = [said_by(attacker, name) for name in names]
    headers = [f"Content-Length: {len(body)}\r\n", "Transfer-Encoding: chunked\r\n"]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (
        body[at:at + 65536] for at in range(0, len(body), 65536))) + b"0\r\n\r\n"
    for _ in range(attacker.few(4)):
        for head, sent in zip(headers, (body, chunks)):
            statuses = attacker.statuses_of(exchange_half(attacker, put_head(attacker, head) + sent))
            attacker.count((statuses or ["closed"])[0])
            attacker.expect(statuses in ([507], []), f"a push to a full disk: {statuses}")
        attacker.expect([said_by(attacker, name) for name in names] == before, "an old version is not what it was")
    delete(attacker, names.pop())
    attacker.wait_for(lambda: push(attacker, body, "?version=two").status == 200)
    attacker.expect(said_by(attacker)[0] == "two", "there is no room after a delete")
    for name in [*names, PREY]:
        delete(attacker, name)


PUSHED = frozenset({200, 429})
REFUSED = frozenset({400, 401, 403, 404, 405, 408, 411, 413, 414, 415, 422, 429, 431, 501, 503, 507})
ATTACKS = [
    Attack("lying_pushes", lying_pushes, REFUSED | {200, "closed"}, once=True),
    Attack("dripping_pushes", dripping_pushes, PUSHED | {"held"}),
    Attack("storms_of_swaps", storms_of_swaps, PUSHED | {409}),
    # 503: a new request in a pause.
    Attack("storms_of_pauses", storms_of_pauses, PUSHED | {409, 503}),
    Attack("wrong_fields_of_trainers", wrong_fields_of_trainers, REFUSED | {200}, once=True),
    Attack("keyless_trainers", keyless_trainers, frozenset({401}), keys=KEYS, attacker_has_key=False),
    Attack("users_as_trainers", users_as_trainers, frozenset({403}), keys=KEYS, before=admin_keys),
    *([Attack("full_disk", full_disk, PUSHED | {507, "closed"}, before=small_disk)] if may_mount() else []),
]
