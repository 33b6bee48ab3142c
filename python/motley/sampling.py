"""How an answer is drawn, and where it ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

NEUTRAL_AS_NONE = ("seed", "stop", "stop_token_ids", "max_tokens", "prompt_logprobs", "logit_bias", "allowed_token_ids",
                   "bad_words", "structured_outputs")


@dataclasses.dataclass
class SamplingParams:
    """The fields and defaults of vLLM's class of this name. `max_tokens` None: the rest of the context.

    `logprobs` N: log-probabilities of each token and of the N likeliest. `prompt_logprobs` N: the same of the prompt.
    `structured_outputs`: an object with `json`, `regex`, `choice` or `grammar`. `extra`: more fields of the request.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] | None = None
    allowed_token_ids: Sequence[int] | None = None
    bad_words: Sequence[str] | None = None
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    structured_outputs: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def fields(self) -> dict[str, Any]:
        """Fields of a request; without `logprobs`, which chats and completions write differently."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name in NEUTRAL_AS_NONE:
            if values[name] is None:
                del values[name]
        del values["extra"], values["logprobs"]
        if self.logit_bias is not None:
            values["logit_bias"] = {str(token): bias for token, bias in self.logit_bias.items()}
        return values | dict(self.extra)
