"""What requests give: the fields that vLLM's results have, and those of adapters."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass
class Logprob:
    """Of one token. `rank` counts from 1; None where it is not known."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


TokenLogprobs = dict[int, Logprob]  # the token itself and the likeliest ones


@dataclasses.dataclass
class CompletionOutput:
    """One answer to a prompt, or what is new of it in a stream.

    `finish_reason` is `stop`, `length`, `tool_calls` or `abort`; None in a stream before the end. `message` is a chat's: what
    the model says, its reasoning and its calls, as OpenAI has them.
    """

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    message: dict[str, Any] | None = None

    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclasses.dataclass
class RequestOutput:
    """All answers to a prompt. `adapter_version` is the version of the adapter's content that they were made with; None: the
    base's."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    prompt_logprobs: list[TokenLogprobs | None] | None = None
    num_cached_tokens: int = 0
    adapter_version: str | None = None
    finished: bool = True


@dataclasses.dataclass
class ScoreOutput:
    """Log-probabilities of a prompt's tokens: of each one given those before it, None for the first."""

    prompt: str | None
    token_ids: list[int]
    token_logprobs: list[float | None]
    top_logprobs: list[TokenLogprobs | None]
    adapter_version: str | None = None

    @property
    def logprob(self) -> float:
        """Of the whole."""
        return sum(value for value in self.token_logprobs if value is not None)


@dataclasses.dataclass
class AdapterInfo:
    """An adapter that the server has. `checksum` is None if it was loaded from a folder."""

    name: str
    version: str
    bytes: int
    state: str
    checksum: str | None = None
