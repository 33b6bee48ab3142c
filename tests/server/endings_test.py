"""Answers and calls that must follow a schema come to their end, whatever a little model would rather write.

usage: endings_test.py MOTLEY MODEL

Four schemas, the base model and every adapter, three temperatures: 72 answers and 144 calls with the demo's model."""

import concurrent.futures
import itertools
import json
import re
import sys
from pathlib import Path

from server_process import ServerProcess

MAX_TOKENS = 400
ANSWER_SECONDS = 300  # for two dozen answers of that length at once
# Every text and list in them is bounded; numbers are not.
SCHEMAS = {
    "person": {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 24}, "age": {"type": "integer"},
                       "email": {"anyOf": [{"type": "string", "maxLength": 30}, {"type": "null"}]},
                       "active": {"type": "boolean"}},
        "required": ["name", "age", "email", "active"], "additionalProperties": False},
    "measurements": {
        "type": "object",
        "properties": {"unit": {"enum": ["m", "kg", "s"]},
                       "values": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 4},
                       "error": {"type": "number", "minimum": 0}, "count": {"type": "integer", "minimum": 1}},
        "required": ["unit", "values", "error", "count"]},
    "plan": {
        "type": "object",
        "properties": {"steps": {"type": "array", "maxItems": 3, "items": {
            "type": "object", "properties": {"title": {"type": "string", "maxLength": 20},
                                             "done": {"type": "boolean"}}, "required": ["title", "done"]}},
            "due": {"type": "string", "format": "date"}},
        "required": ["steps", "due"]},
    "tree": {
        "$defs": {"leaf": {"type": "object", "properties": {
            "id": {"type": "integer", "minimum": 0, "maximum": 999}, "tag": {"const": "leaf"}}, "required": ["id", "tag"]}},
        "type": "object",
        "properties": {"left": {"$ref": "#/$defs/leaf"}, "right": {"$ref": "#/$defs/leaf"},
                       "code": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{2}$"}},
        "required": ["left", "right", "code"]},
}


def check(name, value):
    """What any answer of a schema has."""
    schema = SCHEMAS[name]
    assert list(value) == list(schema["properties"]), value
    if name == "person":
        assert len(value["name"]) <= 24 and isinstance(value["age"], int) and isinstance(value["active"], bool), value
    elif name == "measurements":
        assert 2 <= len(value["values"]) <= 4 and value["error"] >= 0 and value["count"] >= 1, value
    elif name == "plan":
        assert len(value["steps"]) <= 3 and re.fullmatch(r"\d{4}-\d\d-\d\d", value["due"]), value
    else:
        assert value["left"]["tag"] == "leaf" and re.fullmatch("[A-Z]{3}-[0-9]{2}", value["code"]), value


def chat(server, body):
    status, text, _ = server.ask("/v1/chat/completions", body, seconds=ANSWER_SECONDS)
    assert status == 200, text
    return json.loads(text)


def requests(models, temperatures):
    """(name of the schema, kind, body)"""
    for model, temperature, name in itertools.product(models, temperatures, SCHEMAS):
        body = {"model": model, "temperature": temperature, "seed": 7, "max_tokens": MAX_TOKENS,
                "messages": [{"role": "user", "content": f"Give me a {name}."}]}
        tools = [{"type": "function", "function": {"name": name, "parameters": SCHEMAS[name]}}]
        schema = {"name": name, "schema": SCHEMAS[name]}
        yield name, "answer", body | {"response_format": {"type": "json_schema", "json_schema": schema}}
        # Several calls may follow each other without end.
        yield name, "call", body | {"tools": tools, "tool_choice": "required", "parallel_tool_calls": False}
        yield name, "call", body | {"tools": tools, "tool_choice": {"type": "function", "function": {"name": name}}}


def finished(server, name, kind, body):
    """The number of tokens and of characters that are blank, and how many there are."""
    answer = chat(server, body)
    choice = answer["choices"][0]
    place = f"{body['model']} at {body['temperature']}, {kind} of {name}"
    assert choice["finish_reason"] != "length", f"{place} does not end: {choice['message']}"
    if kind == "answer":
        text = choice["message"]["content"]
    else:
        (call,) = choice["message"]["tool_calls"]
        assert call["function"]["name"] == name, place
        text = call["function"]["arguments"]
    check(name, json.loads(text))
    return answer["usage"]["completion_tokens"], sum(c.isspace() for c in text), len(text)


def main():
    program, model = sys.argv[1], Path(sys.argv[2])
    adapters = [f"--adapter={folder.name}={folder}" for folder in sorted((model / "adapters").iterdir())]
    server = ServerProcess(program, model, *adapters, "--device", "cpu", "--adapter-memory", "64M", "--kv-memory", "256M")
    models = [model.name, *sorted(folder.name for folder in (model / "adapters").iterdir())]
    asked = list(requests(models, [0, 0.6, 1]))
    failed = []
    counts = []
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        for request in [pool.submit(finished, server, *each) for each in asked]:
            try:
                counts.append(request.result())
            except AssertionError as problem:
                failed.append(str(problem))
    status = server.end()
    assert status == 0, f"status {status}: {server.last_lines()}"
    assert not failed, "\n".join(failed)
    tokens, blanks, characters = zip(*counts)
    print(f"{len(counts)} of {len(asked)} finished, with up to {max(tokens)} tokens; "
          f"{100 * sum(blanks) / sum(characters):.0f} % of their characters are blank")


main()
