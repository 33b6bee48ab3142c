"""Connections: too many, too slow, half sent, never read, with heads that mean two things."""

import os
import re
import selectors
import socket
import time
from pathlib import Path

from attacker import Attacker
from harness import Attack
from processes import MEGABYTE, Launch

KEYS = ("the-neighbours-key", "another-key")
MAX_CONNECTIONS = 80
REFUSED = frozenset({400, 401, 403, 404, 405, 408, 411, 413, 414, 417, 421, 426, 429, 431, 501, 505})


def unauthorised_bodies(attacker: Attacker) -> None:
    """40 clients without a key that send 13 MB each: refused by the head."""
    connections = []
    for index in range(40):
        connection = attacker.connect()
        connection.setblocking(False)
        key = "" if index % 2 else "Authorization: Bearer not-the-key\r\n"
        head = attacker.head("/v1/completions", 13 * MEGABYTE, key)
        connections.append([connection, head, 13 * MEGABYTE, b""])
    end = time.monotonic() + attacker.within(5)
    block = b" " * 65536
    while connections and time.monotonic() < end:
        for entry in list(connections):
            if push(entry, block):
                attacker.count((attacker.statuses_of(entry[3]) or ["closed"])[0])
                connections.remove(entry)
        time.sleep(0.001)
    attacker.expect(not connections, f"{len(connections)} connections without a key were read to the end")
    for connection, *_ in connections:
        connection.close()


def push(entry: list, block: bytes) -> bool:
    """Sends and receives what it can; whether the other side has answered or closed."""
    connection, head, left, _ = entry
    try:
        if head:
            entry[1] = head[connection.send(head):]
        elif left:
            entry[2] -= connection.send(block[:left])
    except BlockingIOError:
        pass
    except OSError:
        entry[2] = 0
    try:
        piece = connection.recv(1 << 16)
        entry[3] += piece
        done = not piece or b"\r\n\r\n" in entry[3]
    except BlockingIOError:
        done = False
    except OSError:
        done = True
    if done:
        connection.close()
    return done


def wrong_keys(attacker: Attacker) -> None:
    """Keys that are prefixes, empty, long or in the wrong words."""
    right = KEYS[0]
    for value in ("", "Bearer", "Bearer ", f"Bearer {right[:-1]}", f"Bearer {right}x", f"Basic {right}",
                  f"Bearer {right} {right}", "Bearer " + "x" * 20000, f"Bearer {right.upper()}", "Bearer \xff"):
        answer = attacker.ask("POST", "/v1/completions", b'{"prompt": "a"}',
                              {"Authorization": value.encode("latin-1"), "Content-Type": "application/json"})
        attacker.expect(answer.status == 401, f"key {value[:30]!r}: {answer.status}")
        attacker.expect(right not in answer.text(), "an answer says a key")
    for path in ("/v1/models", "/metrics", "/v1/load_lora_adapter"):
        came = attacker.exchange(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        attacker.note(f"{path} without a key: {attacker.statuses_of(came)[:1]}")


def too_many_connections(attacker: Attacker) -> None:
    """More than one address may have: others still come in."""
    held = []
    try:
        for _ in range(2 * MAX_CONNECTIONS):
            try:
                held.append(attacker.connect(2))
            except OSError:
                attacker.count("refused")
        most, closed = MAX_CONNECTIONS // 2 + 2, set()

        def few_are_open() -> bool:
            closed.update(connection for connection in held if connection not in closed and is_closed(connection))
            return len(held) - len(closed) <= most

        attacker.expect(attacker.wait_for(few_are_open), f"{len(held) - len(closed)} connections of one address are open")
        attacker.count("closed" if closed else "open")
    finally:
        for connection in held:
            connection.close()


def is_closed(connection: socket.socket) -> bool:
    """Whether the server has answered or closed a connection that has sent nothing."""
    connection.setblocking(False)
    try:
        connection.recv(4096)
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True


def idle_and_slow_connections(attacker: Attacker) -> None:
    """1,000 that say nothing and 500 that send a byte now and then."""
    held, request = [], attacker.completion_bytes()
    try:
        for _ in range(attacker.few(1000)):
            held.append(attacker.connect())
        slow = [attacker.connect() for _ in range(attacker.few(500))]
        held += slow
        for sent in range(0, 60):
            for connection in slow[sent % 4::4]:
                try:
                    connection.send(request[sent // 4:sent // 4 + 1])
                except OSError:
                    attacker.count("cut")
            time.sleep(attacker.pause(0.03, 0.01))
    finally:
        for connection in held:
            connection.close()


HOST = "Host: localhost\r\n"
SMUGGLED = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEADS = {
    "coded": f"POST /v1/completions HTTP/1.1\r\n{HOST}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "coded twice": f"POST /v1/completions HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "unknown coding": f"POST /v1/completions HTTP/1.1\r\n{HOST}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "identity": f"POST /v1/completions HTTP/1.1\r\n{HOST}Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{{}}",
    "of 1.0": "POST /v1/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "both lengths": f"POST /v1/completions HTTP/1.1\r\n{HOST}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": f"POST /v1/completions HTTP/1.1\r\n{HOST}Content-Length: 2\r\nContent-Length: 60\r\n\r\n{{}}",
    "list of lengths": f"POST /v1/completions HTTP/1.1\r\n{HOST}Content-Length: 2, 2\r\n\r\n{{}}",
    "signed length": f"POST /v1/completions HTTP/1.1\r\n{HOST}Content-Length: +2\r\n\r\n{{}}",
    "hex length": f"POST /v1/completions HTTP/1.1\r\n{HOST}Content-Length: 0x2\r\n\r\n{{}}",
    "space before colon": f"POST /v1/completions HTTP/1.1\r\n{HOST}Content-Length : 2\r\n\r\n{{}}",
    "NUL": f"GET /health HTTP/1.1\r\n{HOST}X: a\x00b\r\n\r\n",
    "bare return": f"GET /health HTTP/1.1\r\n{HOST}X: a\rY: b\r\n\r\n",
    "long chunk": f"POST /v1/completions HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n",
    "signed chunk": f"POST /v1/completions HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n-1\r\n",
    "chunk without end": f"POST /v1/completions HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}xx\r\n0\r\n\r\n",
    "two hosts": f"GET /health HTTP/1.1\r\n{HOST}Host: other\r\n\r\n",
    "no host": "GET /health HTTP/1.1\r\n\r\n",
    "HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/9": f"GET / HTTP/9.9\r\n{HOST}\r\n",
    "TLS": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "TRACE": f"TRACE / HTTP/1.1\r\n{HOST}X-Secret: secret\r\n\r\n",
    "CONNECT": f"CONNECT elsewhere:443 HTTP/1.1\r\n{HOST}\r\n",
    "DELETE": f"DELETE /v1/models HTTP/1.1\r\n{HOST}\r\n",
    "long target": f"GET /{'x' * 100000} HTTP/1.1\r\n{HOST}\r\n",
    "long head": f"GET /health HTTP/1.1\r\n{HOST}X: {'x' * 100000}\r\n\r\n",
    "many fields": f"GET /health HTTP/1.1\r\n{HOST}" + "X: y\r\n" * 20000 + "\r\n",
    "expectation": f"POST /v1/completions HTTP/1.1\r\n{HOST}Content-Length: 2\r\nExpect: miracle\r\n\r\n{{}}",
    "traversal": f"GET /../../../etc/passwd HTTP/1.1\r\n{HOST}\r\n",
    "coded traversal": f"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\n{HOST}\r\n",
    "traversal of models": f"GET /v1/models/..%2f..%2fetc%2fpasswd HTTP/1.1\r\n{HOST}\r\n",
    "response splitting": f"GET /v1/models/a%0d%0aSet-Cookie:%20x HTTP/1.1\r\n{HOST}\r\n",
    "other site": f"GET http://elsewhere/v1/nothing HTTP/1.1\r\n{HOST}\r\n",
}


def heads_that_lie(attacker: Attacker) -> None:
    """Each is refused, and what is hidden behind it is no second request."""
    for label, head in HEADS.items():
        came = attacker.exchange(head.encode("latin-1"), 3)
        statuses = attacker.statuses_of(came)
        attacker.count((statuses or ["closed"])[0])
        attacker.expect(set(statuses) <= REFUSED and len(statuses) <= 1, f"{label}: answered {statuses}")
        attacker.expect(b"root:" not in came and b"secret" not in came.lower()
                        and b"\r\nSet-Cookie" not in came, f"{label}: {came[:80]!r}")
    for label in ("coded", "of 1.0", "both lengths", "two lengths", "signed length", "space before colon",
                  "identity", "coded twice"):
        statuses = attacker.statuses_of(attacker.exchange(HEADS[label].encode() + SMUGGLED, 3))
        attacker.expect(200 not in statuses, f"{label}: what is hidden behind it was answered: {statuses}")


def upgrades(attacker: Attacker) -> None:
    """Protocols that the server does not speak: ignored or refused, never switched to."""
    for protocol in ("websocket", "h2c", "TLS/1.2", "x" * 5000):
        came = attacker.exchange(
            f"GET /health HTTP/1.1\r\n{HOST}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {protocol}\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nHTTP2-Settings: AAMAAABk\r\n\r\n".encode(), 3)
        status = (attacker.statuses_of(came) or [0])[0]
        attacker.count(status)
        attacker.expect(status != 101, f"switched to {protocol[:20]}")


def pipelined_floods(attacker: Attacker) -> None:
    """Requests by the thousand whose answers are read late or never."""
    health = f"GET /health HTTP/1.1\r\n{HOST}\r\n".encode()
    with attacker.connect(attacker.within(10)) as connection:
        connection.sendall(health * 200)
        came = b""
        while came.count(b"HTTP/1.1 ") < 200:
            piece = connection.recv(1 << 16)
            if not piece:
                break
            came += piece
        attacker.expect(came.count(b"HTTP/1.1 200") == 200,
                        f"{came.count(b'HTTP/1.1 200')} of 200 pipelined requests are answered")
    unread = []
    for _ in range(24):
        connection = attacker.connect()
        connection.setblocking(False)
        try:
            connection.send(attacker.completion_bytes(max_tokens=8, stream=True) * 400)
        except OSError:
            pass
        unread.append(connection)
    time.sleep(attacker.pause(1, 0.3))
    for connection in unread:
        connection.close()
    attacker.count(200)


def half_sent(attacker: Attacker) -> None:
    """Requests that stop in the middle, of the head and of the body."""
    whole = attacker.completion_bytes(prompt="x" * 1000)
    held = []
    for cut in (1, 20, 60, whole.index(b"\r\n\r\n") + 4, whole.index(b"\r\n\r\n") + 50, len(whole) - 1) * 8:
        connection = attacker.connect()
        connection.sendall(whole[:cut])
        held.append(connection)
    attacker.count("held")
    time.sleep(attacker.pause(1, 0.3))
    for connection in held:
        connection.close()


def slow_reader(attacker: Attacker) -> None:
    """One that reads a large answer slowly gets all of it, beside one that stops."""
    fields = dict(prompt=[7] * 1000, max_tokens=0, echo=True, logprobs=20, n=8)
    stopped, slow = attacker.connect(), attacker.connect()
    stopped.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    stopped.sendall(attacker.completion_bytes(**fields))
    slow.sendall(attacker.completion_bytes(**fields))
    came, began = b"", time.monotonic()
    try:
        while not attacker.is_whole(came[:2000] + came[-20:]) and not whole_length(came):
            piece = slow.recv(1 << 17)
            if not piece:
                break
            came += piece
            # About 4 s for all with --timed, whose limit is 2 s without progress.
            time.sleep(attacker.pause(0.1, 0.02))
    except OSError as error:
        attacker.fail(f"a reader that goes on was cut after {time.monotonic() - began:.1f} s and {len(came)} bytes: {error}")
    attacker.count((attacker.statuses_of(came[:20]) or [0])[0])
    attacker.expect(whole_length(came) or came.endswith(b"0\r\n\r\n"),
                    f"a slow reader got {len(came)} bytes in {time.monotonic() - began:.1f} s, not all")
    attacker.note(f"{len(came) >> 10} KB in {time.monotonic() - began:.1f} s")
    slow.close()
    stopped.close()


def limit_of_slow_readers(folder: Path, launch: Launch, timed: bool) -> None:
    """Seconds without progress until a reader is cut: a reader that is not scheduled for long is not cut either, unless times
    are judged."""
    launch.options += ("--client-timeout", "2" if timed else "300")


def whole_length(came: bytes) -> bool:
    head, gap, _ = came[:4000].partition(b"\r\n\r\n")
    length = re.search(rb"content-length: *(\d+)", head.lower())
    return bool(gap and length) and len(came) >= len(head) + 4 + int(length[1])


def origins(attacker: Attacker) -> None:
    """Pages of other sites: no leave to read, unless the operator gave it."""
    for origin in ("http://evil.example", "null", f"http://localhost.evil.example:{attacker.port}", "http://127.0.0.1:1"):
        for method in ("OPTIONS", "POST"):
            answer = attacker.ask(method, "/v1/completions", b'{"prompt": "a", "max_tokens": 1}', {
                "Origin": origin, "Content-Type": "application/json",
                "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"})
            allowed = {name.lower(): value for name, value in answer.headers.items()}.get("access-control-allow-origin")
            attacker.expect(allowed is None, f"{method} from {origin}: allowed {allowed}")
    answer = attacker.ask("POST", "/v1/load_lora_adapter", b"{}", {"Origin": "http://evil.example"})
    attacker.expect(answer.status in (400, 403), f"a page loads adapters: {answer.status}")


def named_origin(attacker: Attacker) -> None:
    """The origin that --cors-origin names, and no other."""
    for origin, wanted in (("https://app.example", "https://app.example"), ("https://app.example.evil", None)):
        answer = attacker.ask("OPTIONS", "/v1/completions", None, {
            "Origin": origin, "Access-Control-Request-Method": "POST"})
        allowed = {name.lower(): value for name, value in answer.headers.items()}.get("access-control-allow-origin")
        attacker.expect(allowed == wanted, f"{origin}: allowed {allowed}")


def hosts(attacker: Attacker) -> None:
    """A page whose name is made to resolve to this machine (DNS rebinding)."""
    for host in ("evil.example", f"evil.example:{attacker.port}", "localhost.evil.example", "127.0.0.1.evil.example"):
        came = attacker.exchange(f"GET /v1/models HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        status = (attacker.statuses_of(came) or [0])[0]
        attacker.count(status)
        attacker.expect(status in (400, 403, 421), f"Host {host}: {status}")
    for host in ("localhost", f"127.0.0.1:{attacker.port}", "[::1]"):
        came = attacker.exchange(f"GET /v1/models HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        attacker.expect(attacker.statuses_of(came)[:1] == [200], f"Host {host}: {came[:30]!r}")


def injected_lines(attacker: Attacker) -> None:
    """Request ids and targets that would write lines of their own into the log."""
    for value in ("a\" level=error", "x" * 10000, "\x1b[31m", "a\tb", "\xff\xfe"):
        came = attacker.exchange(f"GET /health HTTP/1.1\r\n{HOST}X-Request-Id: {value}\r\nConnection: close\r\n\r\n"
                                 .encode("latin-1"))
        attacker.count((attacker.statuses_of(came) or ["closed"])[0])
    attacker.ask("GET", "/%0a2026-01-01T00:00:00Z%20error%20forged")
    attacker.ask("GET", "/v1/models/%1b%5b31m")


def injected_lines_after(verdict, server) -> None:
    for line in server.log_text().splitlines():
        if line.lstrip().startswith("2026-01-01T00:00:00Z error forged") or "\x1b" in line:
            verdict.fail(f"a client wrote into the log: {line[:100]!r}")


def stopped_log_reader(attacker: Attacker) -> None:
    """Standard error is a pipe without a reader; the server serves, and says later what it lost."""
    # A line of the log each, of 300 bytes and more, together beyond what the server keeps of them.
    batch = (f"GET /{'x' * 200} HTTP/1.1\r\n{HOST}X-Request-Id: {'y' * 128}\r\n\r\n" * 100).encode()
    with attacker.connect(attacker.within(20)) as connection:
        for _ in range(100):
            connection.sendall(batch)
            came = b""
            while came.count(b"HTTP/1.1 404") < 100:
                piece = connection.recv(1 << 16)
                if not piece:
                    return attacker.fail("a connection was closed while the log was not read")
                came += piece
            attacker.count(404)
    attacker.complete()
    os.set_blocking(attacker.log_reader, False)
    said = b""

    def lost_lines_said() -> bool:
        nonlocal said
        attacker.ask("POST", "/v1/completions", b"{")  # a line, so that there is an occasion
        try:
            while piece := os.read(attacker.log_reader, 1 << 16):
                said += piece
        except BlockingIOError:
            pass
        return re.search(rb"log.*(lost|dropped)", said) is not None

    attacker.expect(attacker.wait_for(lost_lines_said, 10), "lost lines of the log are not said")
    attacker.note(f"{len(said.splitlines())} lines came")


ATTACKS = [
    Attack("unauthorised_bodies", unauthorised_bodies, frozenset({401, "closed"}), keys=KEYS, attacker_has_key=False,
           peak=64 * MEGABYTE),
    Attack("wrong_keys", wrong_keys, frozenset({401}), keys=KEYS, attacker_has_key=False),
    Attack("too_many_connections", too_many_connections, frozenset({"refused", "closed"}), needs="--max-connections",
           launch=Launch(options=("--max-connections", str(MAX_CONNECTIONS)))),
    Attack("idle_and_slow_connections", idle_and_slow_connections, frozenset({"cut"})),
    Attack("heads_that_lie", heads_that_lie, REFUSED | {"closed"}, once=True),
    Attack("upgrades", upgrades, REFUSED | {200}),
    Attack("pipelined_floods", pipelined_floods, frozenset({200})),
    Attack("half_sent", half_sent, frozenset({"held"})),
    Attack("slow_reader", slow_reader, frozenset({200}), before=limit_of_slow_readers, once=True,
           in_sanitized=False),
    Attack("origins", origins, frozenset({200, 204, 400, 403, 404, 405})),
    Attack("named_origin", named_origin, frozenset({200, 204, 403}), needs="--cors-origin",
           launch=Launch(options=("--cors-origin", "https://app.example"))),
    Attack("hosts", hosts, frozenset({200, 400, 403, 421})),
    Attack("injected_lines", injected_lines, REFUSED | {200, "closed"}, after=injected_lines_after),
    Attack("stopped_log_reader", stopped_log_reader, frozenset({200, 400, 404}), launch=Launch(log_pipe=True), once=True,
           max_seconds=30),
]
