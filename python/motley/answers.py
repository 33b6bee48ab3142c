"""Reads the server's answers into results, whole ones and the events of streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .prompts import ReadPrompt
from .results import CompletionOutput, Logprob, RequestOutput, ScoreOutput, TokenLogprobs

TOKEN_MARK = "token_id:"  # which requests ask for


def read_answer(answer: Mapping[str, Any], prompt: ReadPrompt) -> RequestOutput:
    """Of /inference/v1/generate, and of chats."""
    usage = answer.get("usage") or {}
    cached = usage.get("prompt_tokens_details") or {}
    return RequestOutput(
        request_id=answer.get("request_id") or answer.get("id") or "",
        prompt=prompt.text,
        prompt_token_ids=prompt.token_ids or answer.get("prompt_token_ids") or [],
        outputs=[read_choice(choice) for choice in answer["choices"]],
        prompt_logprobs=read_prompt_logprobs(answer.get("prompt_logprobs")),
        num_cached_tokens=cached.get("cached_tokens", 0),
        adapter_version=answer.get("adapter_version"))


def read_choice(choice: Mapping[str, Any]) -> CompletionOutput:
    """A choice, or what is new of it: the `delta` of a chat's stream."""
    message = choice.get("message", choice.get("delta"))
    text = choice.get("text") if message is None else message.get("content")
    content = (choice.get("logprobs") or {}).get("content")
    return CompletionOutput(
        index=choice["index"],
        text=text or "",
        token_ids=choice.get("token_ids") or [],
        cumulative_logprob=None if content is None else sum(entry["logprob"] for entry in content),
        logprobs=None if content is None else [read_token_logprobs(entry) for entry in content],
        finish_reason=choice.get("finish_reason"),
        stop_reason=choice.get("stop_reason"),
        message=message)


def read_token_logprobs(entry: Mapping[str, Any]) -> TokenLogprobs:
    """The drawn token first. The server lists the likeliest tokens in their order, which gives their ranks."""
    likeliest = [each for each in entry["top_logprobs"] if "token" in each]
    ranks = {each["token"]: rank for rank, each in enumerate(likeliest, 1)}
    found: TokenLogprobs = {}
    for each in [entry, *likeliest]:
        text = bytes(each.get("bytes") or []).decode(errors="replace")
        found.setdefault(int(each["token"].removeprefix(TOKEN_MARK)),
                         Logprob(each["logprob"], ranks.get(each["token"]), text))
    return found


def read_prompt_logprobs(listed: list[Any] | None) -> list[TokenLogprobs | None] | None:
    if listed is None:
        return None
    return [None if each is None else {
        int(token): Logprob(value["logprob"], value.get("rank"), value.get("decoded_token"))
        for token, value in each.items()} for each in listed]


def read_score(answer: RequestOutput) -> ScoreOutput:
    """Of a prompt whose log-probabilities were asked for."""
    tops = answer.prompt_logprobs or [None] * len(answer.prompt_token_ids)
    values = [None if top is None else top[token].logprob
              for token, top in zip(answer.prompt_token_ids, tops, strict=True)]
    return ScoreOutput(answer.prompt, answer.prompt_token_ids, values, tops, answer.adapter_version)


