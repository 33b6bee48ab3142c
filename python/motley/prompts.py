"""What callers may write as a prompt, and which adapter answers it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Union

Prompt = Union[str, Sequence[int], Mapping[str, Any]]  # text, ids, {"prompt": text}, {"prompt_token_ids": ids}
Message = Mapping[str, Any]
Conversation = Sequence[Message]
Adapter = Union[str, Mapping[str, float], None]  # a name; names with scales, mixed; None: the base


@dataclasses.dataclass
class ReadPrompt:
    """A text whose ids are not known, or ids."""

    text: str | None
    token_ids: list[int] | None


def read_prompt(prompt: Prompt) -> ReadPrompt:
    if isinstance(prompt, str):
        return ReadPrompt(prompt, None)
    if isinstance(prompt, Mapping):
        if "prompt_token_ids" in prompt:
            return ReadPrompt(prompt.get("prompt"), integers(prompt["prompt_token_ids"]))
        if isinstance(prompt.get("prompt"), str):
            return ReadPrompt(prompt["prompt"], None)
        raise TypeError("a prompt that is a dict has 'prompt' (a text) or 'prompt_token_ids'")
    return ReadPrompt(None, integers(prompt))


def read_prompts(prompts: Prompt | Sequence[Prompt]) -> list[ReadPrompt]:
    """One prompt, or a list of them. A list of integers is one prompt."""
    if isinstance(prompts, (str, Mapping)):
        return [read_prompt(prompts)]
    listed = as_list(prompts)
    if listed and isinstance(listed[0], int):
        return [read_prompt(listed)]
    return [read_prompt(prompt) for prompt in listed]


def read_conversations(messages: Conversation | Sequence[Conversation]) -> list[list[Message]]:
    """One conversation, or a list of them."""
    listed: list[Any] = list(messages)
    if listed and isinstance(listed[0], Mapping):
        return [listed]
    return [list(each) for each in listed]


def one_each(values: Any, count: int, what: str) -> list[Any]:
    """A value for each prompt: a list has one for each, anything else is for all."""
    if not isinstance(values, (list, tuple)):
        return [values] * count
    if len(values) != count:
        raise ValueError(f"{len(values)} {what} for {count} prompts: give one for all, or a list with one for each")
    return list(values)


def adapter_fields(adapter: Adapter) -> dict[str, Any]:
    """Of a request."""
    if adapter is None:
        return {}
    if isinstance(adapter, str):
        return {"model": adapter}
    if isinstance(adapter, Mapping):
        return {"adapters": [{"name": name, "scale": scale} for name, scale in adapter.items()]}
    raise TypeError(f"an adapter is named by a text, or mixed as {{name: scale}}; got {type(adapter).__name__}")


def as_list(values: Any) -> list[Any]:
    """Of numpy's and torch's arrays, too."""
    return values.tolist() if hasattr(values, "tolist") else list(values)


def integers(values: Any) -> list[int]:
    listed = as_list(values)
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in listed):
        raise TypeError("a prompt is a text, a list of token ids, or a dict; give several as a list of those")
    return listed
