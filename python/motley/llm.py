"""A model and its adapters, asked from code that waits for answers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO

from .adapters import AdapterSource
from .async_llm import AsyncLLM
from .event_loop import EventLoop
from .prompts import Adapter, Conversation, Prompt
from .results import AdapterInfo, CompletionOutput, RequestOutput, ScoreOutput
from .sampling import SamplingParams


class LLM:
    """`LLM(model)` starts `motley serve`, which ends with this object, with `close()`, and with this process.

    model        a folder, or `ORG/NAME[@REV]` in the Hugging Face cache
    adapters     names, each with a folder or repository, with `(tensors, config)`, or with a PeftModel
    device, tp   as on the command line of `motley serve`; other options follow as keywords: `kv_memory="4G"`
    url          of a server that runs, in place of a model: `http://HOST:PORT` or `unix:PATH`; `key` is its key
    connections  how many requests run at once
    program      the program to start, in place of the package's
    log          where the server's log is written to, such as sys.stderr
    """

    def __init__(self, model: str | os.PathLike[str] | None = None, adapters: Mapping[str, AdapterSource] | None = None, *,
                 device: str | None = None, tp: int | None = None, url: str | None = None, key: str | None = None,
                 connections: int = 256, program: str | os.PathLike[str] | None = None, log: TextIO | None = None,
                 **options: Any) -> None:
        self._llm = AsyncLLM(model, adapters, device=device, tp=tp, url=url, key=key, connections=connections,
                             program=program, log=log, **options)
        self._loop = EventLoop()
        try:
            self._loop.run(self._llm.start())
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where the server listens: `unix:PATH`, if it belongs to this object."""
        return self._llm.url

    def close(self) -> None:
        """Ends the server, if it belongs to this object. Twice is as once."""
        if self._loop.usable:
            self._loop.run(self._llm.close())
            self._loop.close()

    def generate(self, prompts: Prompt | Sequence[Prompt],
                 sampling_params: SamplingParams | Sequence[SamplingParams] | None = None, *,
                 adapter: Adapter | Sequence[Adapter] = None) -> list[RequestOutput]:
        """Answers to a prompt or a list of prompts, in their order. Without parameters `SamplingParams()` holds.

        A prompt is a text, a list of ids, or a dict with `prompt_token_ids`. `adapter` is a name, `{name: scale, ...}` for
        several at once, or a list with one for each prompt; None is the base.
        """
        return self._loop.run(self._llm.generate(prompts, sampling_params, adapter=adapter))

    def chat(self, messages: Conversation | Sequence[Conversation],
             sampling_params: SamplingParams | Sequence[SamplingParams] | None = None, *,
             adapter: Adapter | Sequence[Adapter] = None, tools: Sequence[Mapping[str, Any]] | None = None,
             tool_choice: Any = None, chat_template_kwargs: Mapping[str, Any] | None = None) -> list[RequestOutput]:
        """Answers to a conversation or a list of them. Without parameters the model's own hold, and answers have no bound
        but the context."""
        return self._loop.run(self._llm.chat(messages, sampling_params, adapter=adapter, tools=tools, tool_choice=tool_choice,
                                             chat_template_kwargs=chat_template_kwargs))

    def score(self, prompts: Prompt | Sequence[Prompt], *, adapter: Adapter | Sequence[Adapter] = None,
              top: int = 0) -> list[ScoreOutput]:
        """Log-probabilities of the tokens of each prompt, and with `top` of the likeliest in their places."""
        return self._loop.run(self._llm.score(prompts, adapter=adapter, top=top))

    def stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None, *,
               adapter: Adapter = None) -> Iterator[CompletionOutput]:
        """What is new of an answer, as it comes. Leaving the iteration ends the request."""
        return self._loop.iterate(self._llm.stream(prompt, sampling_params, adapter=adapter))

    def stream_chat(self, messages: Conversation, sampling_params: SamplingParams | None = None, *, adapter: Adapter = None,
                    tools: Sequence[Mapping[str, Any]] | None = None, tool_choice: Any = None,
                    chat_template_kwargs: Mapping[str, Any] | None = None) -> Iterator[CompletionOutput]:
        return self._loop.iterate(self._llm.stream_chat(
            messages, sampling_params, adapter=adapter, tools=tools, tool_choice=tool_choice,
            chat_template_kwargs=chat_template_kwargs))

    def push_adapter(self, name: str, source: Any, config: Any = None, *, version: str | None = None,
                     expected_version: str | None = None, on_replace: str | None = None,
                     pinned: bool | None = None) -> AdapterInfo:
        """Sends an adapter's tensors, and replaces the one of that name when they are whole.

        `source` is a PeftModel, or a dict of arrays of numpy or torch with `config`, the content of adapter_config.json (a
        dict, a text or a LoraConfig).
        """
        return self._loop.run(self._llm.push_adapter(name, source, config, version=version, expected_version=expected_version,
                                                     on_replace=on_replace, pinned=pinned))

    def load_adapter(self, name: str, path: str | os.PathLike[str], *, replace: bool = False) -> AdapterInfo:
        """Loads a folder that the server can read."""
        return self._loop.run(self._llm.load_adapter(name, path, replace=replace))

    def unload_adapter(self, name: str) -> None:
        """Waits for the requests that use it."""
        self._loop.run(self._llm.unload_adapter(name))

    def adapters(self) -> list[AdapterInfo]:
        return self._loop.run(self._llm.adapters())

    def encode(self, text: str) -> list[int]:
        """The ids that the text has as a prompt."""
        return self._loop.run(self._llm.encode(text))

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._loop.run(self._llm.decode(token_ids))
