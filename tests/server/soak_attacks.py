"""Short attacks that run between the requests of the soak; each says how it was answered."""

import asyncio
import json
import random

ADDRESS = "127.0.0.4"  # another one than that of the clients who are judged
RECURSIVE = ['root ::= (root){2}', 'root ::= "a" | (root){0,3}', 'root ::= "a"\nx ::= (x){2}',
             'root ::= (b){2}\nb ::= (root){2}', 'root ::= root "a" | "a"', 'root ::= ("a"{1000}){1000}']
STARS = ["(" * 15 + "[a-z ]*" + ")*" * 15, "(?:(?:[^x]??)*?)+?", "(" + "|".join(["[a-z ]+"] * 200) + ")*",
         "(a{1,200}){1,200}", "(.*)(.*)(.*)(.*)(.*)x"]
HALVES = [b"POST /v1/comp", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n",
          b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90\r\n\r\n{"]


async def connect(port: int):
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(ADDRESS, 0))


def request_bytes(body, key: str, path: str = "/v1/completions") -> bytes:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n"
            f"Content-Length: {len(text)}\r\n\r\n").encode() + text


async def status_of(port: int, sent: bytes) -> str:
    """The status, or how else it ended."""
    reader, writer = await connect(port)
    try:
        writer.write(sent)
        await writer.drain()
        came = await reader.read()
        return came[9:12].decode(errors="replace") or "closed"
    except OSError:
        return "closed"
    finally:
        writer.transport.abort()


async def post(port: int, key: str, **fields) -> str:
    return await status_of(port, request_bytes(
        {"model": "tiny", "prompt": "a", "max_tokens": 4, "temperature": 0} | fields, key))


async def recursive_grammar(rng: random.Random, port: int, key: str) -> str:
    return await post(port, key, guided_grammar=rng.choice(RECURSIVE))


async def nested_stars(rng: random.Random, port: int, key: str) -> str:
    return await post(port, key, guided_regex=rng.choice(STARS), max_tokens=30, temperature=1, seed=rng.randrange(99))


async def many_optionals(rng: random.Random, port: int, key: str) -> str:
    """A schema of a new kind each time, so that no cache knows it; half of the clients leave."""
    first = rng.randrange(10**9)
    schema = {"type": "object", "additionalProperties": False,
              "properties": {f"p{first + index}": {} for index in range(rng.choice((100, 1500)))}}
    if rng.randrange(2):
        return await post(port, key, guided_json=schema)
    _, writer = await connect(port)
    writer.write(request_bytes({"model": "tiny", "prompt": "a", "guided_json": schema}, key))
    await asyncio.sleep(rng.random() * 0.2)
    writer.transport.abort()
    return "gone"


async def half_sent(rng: random.Random, port: int, key: str) -> str:
    _, writer = await connect(port)
    writer.write(rng.choice(HALVES))
    await asyncio.sleep(rng.random() * 0.2)
    writer.transport.abort()
    return "gone"


async def wrong_key(rng: random.Random, port: int, key: str) -> str:
    wrong = rng.choice(("", key[:-1], key + "x", "x" * 5000))
    return await status_of(port, request_bytes({"model": "tiny", "prompt": "a"}, wrong))


async def oversized(rng: random.Random, port: int, key: str) -> str:
    kind = rng.randrange(3)
    if kind == 0:
        return await status_of(port, request_bytes(b"", key).replace(b"Length: 0", b"Length: 99999999"))
    if kind == 1:
        return await post(port, key, prompt="hills and stones " * rng.randrange(100000))
    return await post(port, key, prompt=[[7] * 400] * 4, n=128, echo=True, logprobs=5, max_tokens=0)


async def damaged_json(rng: random.Random, port: int, key: str) -> str:
    return await status_of(port, request_bytes(rng.choice((
        b"[" * 100000, b"{", b'{"prompt": "\xff"}', b'{"prompt": "a", "prompt": "b"}', b'{"prompt": "a", "n": 1e999}')), key))


async def unknown_adapter(rng: random.Random, port: int, key: str) -> str:
    return await post(port, key, model=rng.choice(("nobody", "tiny:nobody", "../etc", "x" * 10000)))


async def odd_load(rng: random.Random, port: int, key: str) -> str:
    body = {"lora_name": "odd", "lora_path": rng.choice(("/etc", "../..", "nothing", "refused_truncated", "refused_nan"))}
    return await status_of(port, request_bytes(body, key, "/v1/load_lora_adapter"))


ATTACKS = [recursive_grammar, nested_stars, many_optionals, half_sent, wrong_key, oversized, damaged_json,
           unknown_adapter, odd_load]
