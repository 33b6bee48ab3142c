"""Attacks of some addresses on what others get: connections, bodies, workers. Every address of 127.0.0.0/8 is another client.

What is asserted is the order of answers, as the server itself counts them, and that answers come at all.
"""

import gzip
import http.client
import json
import re
import socket

from attacker import Attacker
from harness import Attack
from processes import MEGABYTE, Launch

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
MAX_CONNECTIONS = 80
BODY_BYTES = 15 * MEGABYTE


def connect_from(attacker: Attacker, address: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", attacker.port), timeout=attacker.patience, source_address=(address, 0))


def ask_from(attacker: Attacker, address: str, sent: bytes) -> bytes:
    """The whole answer to a request that closes its connection."""
    received = b""
    with connect_from(attacker, address) as connection:
        try:
            connection.sendall(sent)
            while piece := connection.recv(1 << 16):
                received += piece
        except OSError as error:
            attacker.fail(f"no answer for {address}: {error}")
    return received


def get_from(attacker: Attacker, address: str, path: str) -> tuple[int, str]:
    received = ask_from(attacker, address, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    return (attacker.statuses_of(received) or [0])[0], received.decode(errors="replace")


def completion_from(attacker: Attacker, address: str) -> int:
    body = json.dumps({"model": "base", "prompt": "word", "max_tokens": 4}).encode()
    sent = attacker.head("/v1/completions", len(body), "Connection: close\r\n") + body
    return (attacker.statuses_of(ask_from(attacker, address, sent)) or [0])[0]


def pipelined_gets(attacker: Attacker) -> None:
    """Connections of one address with 64 KiB of requests each: fewer than half of these are answered while a new connection
    of another address waits for its answer. A connection from before counts when it begins."""
    each, held = 65536 // len(HEALTH), []
    older = http.client.HTTPConnection("127.0.0.1", attacker.port, timeout=attacker.patience, source_address=("127.0.0.13", 0))

    def answered(page: str) -> int:
        found = re.search(r'^motley_http_requests_total\{route="/health",status="200"\} (\d+)$', page, re.MULTILINE)
        return int(found[1]) if found else 0

    def count_of_older() -> int:
        older.request("GET", "/metrics", headers=attacker.headers)
        return answered(older.getresponse().read().decode())

    count_of_older()
    for _ in range(attacker.few(400)):
        connection = connect_from(attacker, "127.0.0.11")
        connection.setblocking(False)
        held.append(connection)
    for connection in held:
        try:
            connection.send(HEALTH * each)
        except OSError:
            attacker.count("cut")
    before = count_of_older()
    status, page = get_from(attacker, "127.0.0.12", "/metrics")
    attacker.expect(status == 200, f"another address: {status}")
    between = answered(page) - before
    attacker.expect(between < len(held) * each // 2,
                    f"{between} of {len(held) * each} requests were answered while another address's first waited")
    attacker.count(status)
    older.close()
    for connection in held:
        connection.close()


def all_connections(attacker: Attacker) -> None:
    """Two addresses with as many connections as there are, one byte sent on each: a third is served."""
    held = []
    for address in ("127.0.0.11", "127.0.0.12"):
        for _ in range(MAX_CONNECTIONS):
            try:
                connection = connect_from(attacker, address)
                connection.send(b"G")
                held.append(connection)
            except OSError:
                attacker.count("refused")
    for address in ("127.0.0.13", "127.0.0.14"):
        attacker.count(get_from(attacker, address, "/health")[0])
        attacker.count(completion_from(attacker, address))
    for connection in held:
        connection.close()


def all_bodies(attacker: Attacker) -> None:
    """Four addresses that hold what bodies may hold together: others' small requests are read."""
    held, block = [], b" " * (BODY_BYTES - 1)
    for address in range(11, 15):
        for _ in range(9):
            connection = connect_from(attacker, f"127.0.0.{address}")
            connection.settimeout(attacker.patience)
            try:
                connection.sendall(attacker.head("/v1/completions", BODY_BYTES) + block)
            except OSError:  # refused: this address holds what it may
                attacker.count("refused")
            held.append(connection)
    for address in ("127.0.0.15", "127.0.0.16"):
        attacker.count(completion_from(attacker, address))
    for connection in held:
        connection.close()


def prompts_with_a_schema(attacker: Attacker) -> None:
    """500 prompts with a schema in each of several requests; others are answered."""
    properties = {f"p{index}": {"type": "string", "maxLength": 9} for index in range(200)}
    body = {"model": "base", "prompt": [f"number {index}" for index in range(500)], "max_tokens": 1,
            "guided_json": {"type": "object", "properties": properties, "additionalProperties": False}}
    attacker.all_at_once([lambda: attacker.post("/v1/completions", body)] * 2
                         + [lambda: attacker.expect(get_from(attacker, "127.0.0.12", "/health")[0] == 200, "/health")] * 20)


def bodies_of_gone_clients(attacker: Attacker) -> None:
    """Coded bodies of clients that do not wait: others are answered, and nothing of these is left."""
    body = gzip.compress(json.dumps({"model": "base", "prompt": "a " * (7 * MEGABYTE)}).encode(), 9)
    sent = attacker.head("/v1/completions", len(body), "Content-Encoding: gzip\r\n") + body
    for _ in range(attacker.few(60)):
        with connect_from(attacker, "127.0.0.11") as connection:
            connection.sendall(sent)
    attacker.count(completion_from(attacker, "127.0.0.12"))
    attacker.expect(attacker.wait_for(lambda: attacker.metrics()["motley_http_body_bytes"] == 0), "bodies are held")


def quadratic_template(attacker: Attacker) -> None:
    """`in` on long texts, again and again: refused by a count of steps, and the workers serve others."""
    template = ("{% set a = 'a' * 1000000 %}{% set b = 'a' * 500000 ~ 'b' %}"
                "{% for i in range(100000) %}{{ b in a }}{% endfor %}")
    attacker.all_at_once([lambda: attacker.chat(chat_template=template)] * 3
                         + [lambda: attacker.count(completion_from(attacker, "127.0.0.12"))] * 3)


ATTACKS = [
    Attack("pipelined_gets", pipelined_gets, frozenset({200, "cut"}), once=True),
    Attack("all_connections", all_connections, frozenset({200, "refused"}), once=True,
           launch=Launch(options=("--max-connections", str(MAX_CONNECTIONS)))),
    Attack("all_bodies", all_bodies, frozenset({200, "refused"}), once=True, in_sanitized=False),
    Attack("prompts_with_a_schema", prompts_with_a_schema, frozenset({200, 400, 429}), once=True,
           in_sanitized=False),
    Attack("bodies_of_gone_clients", bodies_of_gone_clients, frozenset({200}), once=True),
    Attack("quadratic_template", quadratic_template, frozenset({200, 400}), once=True, in_sanitized=False, needs="--allow-request-templates",
           launch=Launch(options=("--allow-request-templates",))),
]
