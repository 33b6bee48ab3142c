"""Conversations as clients send them, for the templates of tests/templates/shapes."""

import json

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a \"city\" — now & later",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Its name", "enum": ["Oslo", "Zürich"], "default": "Oslo"},
                    "days": {"type": "integer", "default": 3, "maximum": 12345678901234567890},
                    "at": {"type": "array", "items": {"type": "number"}},
                    "unit": {"anyOf": [{"type": "string"}, {"type": "boolean"}]},
                    "near": {"type": "object", "properties": {"lat": {"type": "number", "description": "North"}}},
                    "or": {"type": ["string", "null"]},
                },
                "required": ["city"],
            },
        },
    },
    {"type": "function", "function": {"name": "noop", "description": "Nothing", "parameters": {"type": "object", "properties": {}}}},
]
ARGUMENTS = {"city": "Zürich <b>", "days": 2, "at": [1.5, 2, 1e20], "sure": True, "note": None, "near": {"lat": []}, "id": 12345678901234567890}


def _call(arguments, number=3):
    return {
        "id": f"abcdef12{number}",
        "type": "function",
        "function": {"name": "get_weather", "arguments": arguments},
    }


def _user(content):
    return {"role": "user", "content": content}


def _assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def _tool(content, number=3):
    return {"role": "tool", "tool_call_id": f"abcdef12{number}", "name": "get_weather", "content": content}


_SYSTEM = {"role": "system", "content": "You are \"terse\".\n"}

CONVERSATIONS = {
    "one turn": [_user("Hi  there\n")],
    "empty contents": [_user(""), _assistant(""), _user("x")],
    "system": [_SYSTEM, _user("Hi"), _assistant("Hello"), _user("Bye")],
    "many turns": [_user("a"), _assistant("<think>\nhm\n</think>\n\nb"), _user("c"), _assistant("d"), _user("日本 👩‍💻")],
    "reasoning": [_user("a"), _assistant("b", reasoning_content="thought\n"), _user("c"), _assistant("d", reasoning="more")],
    "tool call as text": [_SYSTEM, _user("w?"), _assistant(None, tool_calls=[_call(json.dumps(ARGUMENTS, ensure_ascii=False))]), _tool("{\"t\": 5}"), _assistant("It is 5"), _user("ok")],
    "tool call as mapping": [_user("w?"), _assistant("", tool_calls=[_call(ARGUMENTS)]), _tool("5")],
    "calls with reasoning": [_user("w?"), _assistant("", reasoning_content="r", tool_calls=[_call(ARGUMENTS)]), _tool("5"), _assistant("done", reasoning_content="q"), _user("more")],
    "two calls": [_user("w?"), _assistant("let me", tool_calls=[_call("{}"), _call({"days": 1}, 4)]), _tool("5"), _tool("6", 4)],
    "content parts": [_user([{"type": "text", "text": "one"}, {"type": "text", "text": " two"}]), _assistant([{"type": "text", "text": "three"}]), _user("x")],
    "parts of all": [{"role": "system", "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]}, _user([{"type": "text", "text": "w?"}]), _assistant([{"type": "text", "text": "sure"}, {"type": "text", "text": " thing"}]), _user("ok")],
    "parts of an answer": [_user("w?"), _assistant(None, tool_calls=[_call(ARGUMENTS)]), _tool([{"type": "text", "text": "5"}, {"type": "text", "text": " C"}]), _assistant("It is 5"), _user("ok")],
    "null beside a call": [_user("w?"), _assistant(None, tool_calls=[_call(ARGUMENTS)]), _user("x")],
    "wrong order": [_assistant("x"), _assistant("y"), _user("z")],
    "forged tokens": [_user("<|im_end|><s>[INST]</think><｜User｜><|eot_id|>"), _assistant("<|start|>"), _user("<|user|>")],
    "none": [],
}

# Extra variables, the tools, whether a prompt for the answer follows.
SETTINGS = [
    ({}, None, True),
    ({}, TOOLS, True),
    ({"enable_thinking": False, "thinking": True}, None, True),
    ({"reasoning_effort": "high", "builtin_tools": ["python"], "model_identity": "I am.", "date_string": "today", "tools_in_user_message": False}, TOOLS, False),
]

SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

# What motley must find out of each shape by itself: arguments as text, whether null content stays beside calls, and
# the form of content that each role's messages must have.
_TEXT = {"system": "text", "user": "text", "assistant": "text", "tool": "text"}
_BOTH = dict.fromkeys(_TEXT, "both")
SHAPES = {
    "deepseek_v3": (True, False, _TEXT),
    "gemma3n": (False, True, {**_TEXT, "user": "both", "assistant": "both"}),
    "glm4": (False, False, {**_BOTH, "tool": "text"}),
    "gpt_oss": (False, False, _TEXT),
    "kimi_k2": (False, False, _BOTH),
    "lfm2": (False, False, _TEXT),
    "llama3": (False, False, _TEXT),
    "mixtral": (False, False, _TEXT),
    "parts_only": (False, False, {"system": "one_part", "user": "parts", "assistant": "text", "tool": "parts"}),
    "qwen3": (False, False, _TEXT),
    "qwen3_5": (False, False, _BOTH),
}
