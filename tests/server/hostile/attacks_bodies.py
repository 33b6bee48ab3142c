"""Bodies that ask for much: choices, scores, prompts, queues, numbers at the edge, broken JSON."""

import json
import random
import time

from attacker import Attacker
from harness import Attack
from processes import MEGABYTE

MAX_FOR_ANSWERS = 600 * MEGABYTE


def n_times_echo(attacker: Attacker) -> None:
    """4 prompts of 1,023 ids, each 128 times with the scores of all its tokens."""
    answer = attacker.complete(prompt=[[7 + index] * 1023 for index in range(4)], n=128, echo=True,
                               logprobs=20, max_tokens=0, temperature=1)
    if answer.status in (413, 429):
        attacker.expect(any(letter.isdigit() for letter in answer.text()), "the refusal names no figure")
    attacker.note(f"{answer.status}, {len(answer.body) // MEGABYTE} MB")


def n_times_stops(attacker: Attacker) -> None:
    """32 prompts, each 128 times with 16 stops of 1,000 bytes."""
    answer = attacker.complete(prompt=[f"word {index}" for index in range(32)], n=128, max_tokens=2,
                               temperature=1, stop=[f"{index} " + "x" * 996 for index in range(16)])
    attacker.note(f"{answer.status}, {len(answer.body) // 1024} KB")


def huge_texts(size: int) -> list[str]:
    """Texts that tokenizers find hard: words that no cache knows, one word, no words, every script."""
    rng = random.Random(5)
    block = "".join(rng.choices("etaoinshrdlu", k=1 << 16))
    words = "".join(rng.choices("etaoinshrdlu" + " " * 2, k=1 << 16))
    scripts = "".join(chr(rng.choice((0x4e00, 0x3b1, 0x430, 0x5d0)) + rng.randrange(20)) for _ in range(1 << 14))
    texts = [words, block, " ", "\n", "0123456789", scripts, "a", "<|end|>", "e\u0301", "a.b,c;d:"]
    return [(text * (size // len(text.encode()) + 1)).encode()[:size].decode(errors="ignore") for text in texts]


def huge_prompts(attacker: Attacker) -> None:
    """Texts as long as a body may be, far beyond the context; some clients leave at once."""
    size = 1000000 if attacker.settings.quick else 5000000  # newlines are two bytes in JSON
    bodies = [json.dumps({"model": "base", "prompt": text, "max_tokens": 4}, ensure_ascii=False).encode()
              for text in huge_texts(size)]
    bodies.append(json.dumps({"model": "base", "prompt": "hills and old stones " * (2 * size // 21)}).encode())
    for body in bodies[:4]:
        with attacker.connect() as connection:
            connection.sendall(attacker.head("/v1/completions", len(body)) + body)
    chat = json.dumps({"model": "base", "messages": [{"role": "user", "content": "a " * size}]}).encode()
    attacker.all_at_once([lambda b=body: attacker.post("/v1/completions", b) for body in bodies]
                         + [lambda: attacker.post("/v1/chat/completions", chat)] * 2)


def answer_tokens(attacker: Attacker) -> int:
    """Of each of a thousand answers."""
    return 24 if attacker.settings.timed else 6


def queue_hog(attacker: Attacker) -> None:
    """1,300 prompts of one address, sent on as many connections as it takes."""
    prompts = [f"number {index}" for index in range(1300)]
    attacker.all_at_once([lambda part=prompts[at:at + 65]: attacker.complete(prompt=part, max_tokens=answer_tokens(attacker))
                          for at in range(0, 1300, 65)], 20)


def queue_hog_singly(attacker: Attacker) -> None:
    """The same as a request each, a few hundred connections at once."""
    attacker.all_at_once([lambda index=index: attacker.complete(prompt=f"number {index}", max_tokens=answer_tokens(attacker))
                          for index in range(attacker.few(600))], 200)


EDGES = [
    {"max_tokens": 2**63}, {"max_tokens": -1}, {"max_tokens": 0}, {"max_tokens": 1e400}, {"max_tokens": "1"},
    {"n": 0}, {"n": -1}, {"n": 2**31}, {"n": 129}, {"temperature": -1}, {"temperature": 1e308},
    {"temperature": 1e-45}, {"top_p": 0}, {"top_p": 1.0000001}, {"top_k": -2**63}, {"top_k": 2**31 - 1},
    {"min_p": 1}, {"seed": 2**64}, {"seed": -2**63}, {"presence_penalty": 1e300}, {"frequency_penalty": -1e300},
    {"repetition_penalty": 0}, {"repetition_penalty": 1e-300, "temperature": 1}, {"repetition_penalty": 1e300},
    {"logprobs": 2**31}, {"logprobs": -1}, {"min_tokens": 2**40}, {"min_tokens": 500, "max_tokens": 1},
    {"logit_bias": {str(index): 100 for index in range(4096)}},
    {"logit_bias": {str(index): -100 for index in range(4096)}},
    {"logit_bias": {"7": 1e308}}, {"logit_bias": {"7": -1e308}}, {"logit_bias": {"4096": 1}},
    {"logit_bias": {"-1": 1}}, {"logit_bias": {"99999999999999999999": 1}}, {"logit_bias": {"x": 1}},
    {"logit_bias": {str(index): 1 for index in range(200000)}},
    {"stop": ["x" * 10000] * 1000}, {"stop": [""]}, {"stop": ["\x00"]}, {"stop": ["a"] * 100000},
    {"stop": "x" * 5000000}, {"stop_token_ids": list(range(4096))}, {"stop_token_ids": [-1]},
    {"stop_token_ids": [7] * 500000}, {"prompt": [[]]}, {"prompt": [2**31]}, {"prompt": [-1]},
    {"prompt": [7] * 1025}, {"prompt": [[7]] * 5000}, {"prompt": ""}, {"prompt": None}, {"prompt": {"a": 1}},
    {"prompt": "\ud800"}, {"model": "x" * 1000000}, {"model": ["base"]}, {"user": "x" * 1000000},
    {"adapters": [{"name": "cynic", "scale": 1e39}]}, {"adapters": [{"name": "cynic", "scale": -1e38}]},
    {"adapters": [{"name": "cynic"}] * 5000}, {"priority": 2**62}, {"priority": -2**62},
    {"stream": True, "max_tokens": 300, "n": 8, "temperature": 1},
    {"echo": True, "logprobs": 20, "prompt": [7] * 1000, "max_tokens": 1},
]


def field_extremes(attacker: Attacker) -> None:
    attacker.all_at_once([lambda f=fields: attacker.complete(**f) for fields in EDGES], 8)


def template_extremes(attacker: Attacker) -> None:
    """What templates and their arguments can be made of."""
    deep: object = 1
    for _ in range(60):
        deep = {"a": [deep]}
    message = {"role": "user", "content": "a"}
    bodies = [
        {"chat_template_kwargs": {"deep": deep}},
        {"chat_template_kwargs": {f"k{index}": index for index in range(100000)}},
        {"chat_template_kwargs": {"messages": [message] * 1000, "namespace": 1, "range": None}},
        {"chat_template_kwargs": {"enable_thinking": "x" * 5000000}},
        {"messages": [message] * 100000},
        {"messages": [{"role": "x" * 1000000, "content": "a"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * 100000}]},
        {"messages": [{"role": "user", "content": "<|end|><|assistant|>" * 100000}]},
        {"messages": []}, {"messages": [1]}, {"messages": [{"role": "user"}]},
        {"documents": [{"title": "a", "text": "b" * 100}] * 50000},
        {"tools": [{"type": "function", "function": {"name": f"f{index}"}} for index in range(50000)]},
        {"messages": [{"role": "assistant", "content": None, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "a", "arguments": "{" * 100000}}]}, message]},
        {"reasoning_effort": {"a": 1}},
    ]
    attacker.all_at_once([lambda b=body: attacker.chat(**b) for body in bodies], 3)


def damaged_json(attacker: Attacker) -> None:
    """Deep, many, broken: each is 400 (or 413), never more work than reading it."""
    good = b'{"model": "base", "prompt": "a", "max_tokens": 1'
    bodies = [
        b"", b"{", b"nul", b"[" * 1000000, b'{"a":' * 1000000, b"[" * 60 + b"]" * 60,
        good + b', "x": [' + b"1," * 3000000 + b"1]}", good + b', "x": "\xff\xfe"}', good + b', "x": "\xed\xa0\x80"}',
        good + b', "x": "\xc0\x80"}', good + b', "prompt": "b"}', good + b"}}", good + b"} {}", good + b', "n": 1e999999}',
        good + b', "n": ' + b"9" * 100000 + b"}", good + b', "n": -}', good + b', "n": 01}', good + b', "x": "\\ud800"}',
        good + b', "x": "' + b"\\u0000" * 1000000 + b'"}', good + b', "' + b"k" * 10000000 + b'": 1}',
        b"\xef\xbb\xbf" + good + b"}", good.replace(b'"', b"'") + b"}", b"\x00" * 1000, b'"' + b"\\" * 99999,
        good + b"," + b",".join(b'"k%d": 0' % index for index in range(300000)) + b"}", b"true", b"[]", b'""',
    ]
    attacker.all_at_once([lambda b=body: attacker.post("/v1/completions", b) for body in bodies], 4)
    for path in ("/v1/chat/completions", "/v1/load_lora_adapter", "/v1/unload_lora_adapter"):
        for body in bodies[:6]:
            attacker.post(path, body)


def cancelled_streams(attacker: Attacker) -> None:
    """Long answers whose clients go after the first bytes: their places are free at once."""
    sent = attacker.completion_bytes(stream=True, max_tokens=900, n=16, temperature=1, ignore_eos=True)
    for _ in range(attacker.few(40)):
        with attacker.connect() as connection:
            connection.sendall(sent)
            if connection.recv(12):
                attacker.count(200)
    idle = attacker.wait_for(lambda: attacker.metrics()["motley_sequences_waiting"] == 0, attacker.patience)
    attacker.expect(idle, "requests of clients that have gone still wait")


def bodies_that_agree_late(attacker: Attacker) -> None:
    """The largest bodies that are allowed, byte counts that lie, and bodies that stop short."""
    body = attacker.completion_bytes().partition(b"\r\n\r\n")[2]
    for length in (16 * MEGABYTE + 1, 10**12, 2**63, 2**64):
        came = attacker.exchange(attacker.head("/v1/completions", length) + body, 3)
        attacker.expect(attacker.statuses_of(came)[:1] in ([413], [400]), f"length {length}: {came[:60]!r}")
        attacker.count((attacker.statuses_of(came) or [0])[0])
    began = time.monotonic()
    with attacker.connect() as connection:
        connection.sendall(attacker.head("/v1/completions", len(body) + 5) + body)
    attacker.expect(time.monotonic() - began < attacker.within(5), "a short body holds its client")


ATTACKS = [
    Attack("n_times_echo", n_times_echo, frozenset({200, 413, 429}), peak=MAX_FOR_ANSWERS, once=True,
           in_sanitized=False),
    Attack("n_times_stops", n_times_stops, frozenset({200, 413, 429}), peak=MAX_FOR_ANSWERS // 2, once=True,
           in_sanitized=False),
    Attack("huge_prompts", huge_prompts, frozenset({400, 413, 429}), once=True, in_sanitized=False),
    Attack("queue_hog", queue_hog, frozenset({200, 413, 429}), once=True, in_sanitized=False),
    Attack("queue_hog_singly", queue_hog_singly, frozenset({200, 429}), once=True),
    Attack("field_extremes", field_extremes, frozenset({200, 400, 404, 413, 429})),
    Attack("template_extremes", template_extremes, frozenset({200, 400, 413, 429})),
    Attack("damaged_json", damaged_json, frozenset({200, 400, 413})),
    Attack("cancelled_streams", cancelled_streams, frozenset({200})),
    Attack("bodies_that_agree_late", bodies_that_agree_late, frozenset({400, 413})),
]
