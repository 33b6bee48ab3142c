"""Renders with jinja2 under the environment of transformers, but for what motley adds on purpose."""

import datetime
import json
import random

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment
from transformers.utils import chat_template_utils

NOW = datetime.datetime(2026, 7, 14, 9, 5, 3)
CHANGING = {"append", "extend", "insert", "pop"}


class _FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


_is_safe = ImmutableSandboxedEnvironment.is_safe_attribute


def _is_safe_or_ours(self, obj, attr, value):
    """Lists may grow and shrink: Kimi-K2's own template asks for it."""
    return (isinstance(obj, list) and attr in CHANGING) or _is_safe(self, obj, attr, value)


random.seed(1)
chat_template_utils.datetime = _FixedClock
ImmutableSandboxedEnvironment.is_safe_attribute = _is_safe_or_ours


def render(template: str, variables: dict) -> dict:
    """{"text": ...} or {"error": ...}; the message is Jinja's own."""
    try:
        compiled = chat_template_utils._cached_compile_jinja_template(template)
        return {"text": compiled.render(**json.loads(json.dumps(variables)))}
    except jinja2.exceptions.TemplateSyntaxError:
        return {"error": None}
    except Exception as problem:  # whatever Python raises under a template
        return {"error": str(problem)}


def _content(content, form: str):
    text = content if isinstance(content, str) else "".join(part["text"] for part in content)
    if form == "text":
        return text
    if form == "one_part" or (form == "parts" and isinstance(content, str)):
        return [{"type": "text", "text": text}]
    return content


def prepare(messages: list, argument_strings: bool, keeps_null: bool, forms: dict) -> list:
    """Messages as a server hands them to a template: what motley must do by itself."""
    prepared = []
    for message in json.loads(json.dumps(messages)):
        null = message.get("content", "") is None
        if not (null and keeps_null and message.get("tool_calls")):
            message["content"] = _content(message.get("content") or "", forms[message["role"]])
        for call in message.get("tool_calls") or []:
            arguments = call["function"]["arguments"]
            if argument_strings and not isinstance(arguments, str):
                call["function"]["arguments"] = json.dumps(arguments, ensure_ascii=False)
            if not argument_strings and isinstance(arguments, str):
                call["function"]["arguments"] = json.loads(arguments or "{}")
        prepared.append(message)
    return chat_template_utils._alias_reasoning_fields(prepared)
