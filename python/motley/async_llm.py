"""A model and its adapters, asked from asynchronous code."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, TextIO

from .adapters import AdapterSource, adapter_body, is_path
from .address import Address
from .answers import read_answer, read_choice, read_score
from .client import Client, adapter_path
from .errors import MotleyError, RequestError, StartError
from .in_order import in_order
from .prompts import (Adapter, Conversation, Prompt, ReadPrompt, adapter_fields, one_each, read_conversations, read_prompt,
                      read_prompts)
from .results import AdapterInfo, CompletionOutput, RequestOutput, ScoreOutput
from .sampling import SamplingParams
from .server_process import ServerProcess

GENERATE = "/inference/v1/generate"
CHAT = "/v1/chat/completions"
LOOK_SECONDS = 0.02  # between two looks whether a server is ready
END_SECONDS = 5.0  # in which a server ends whose connections have broken off


class AsyncLLM:
    """`AsyncLLM(model)` owns a server, which ends with it; `AsyncLLM(url=...)` asks one that runs.

    `async with` starts the server and ends it. All calls belong to one event loop. LLM has the meanings of the arguments.
    """

    def __init__(self, model: str | os.PathLike[str] | None = None, adapters: Mapping[str, AdapterSource] | None = None, *,
                 device: str | None = None, tp: int | None = None, url: str | None = None, key: str | None = None,
                 connections: int = 256, program: str | os.PathLike[str] | None = None, log: TextIO | None = None,
                 **options: Any) -> None:
        if (model is None) == (url is None):
            raise TypeError("give a model, which is then served here, or the url of a server that runs")
        given = adapters or {}
        self._pushed = {name: source for name, source in given.items() if not is_path(source)}
        self._server: ServerProcess | None = None
        if model is not None:
            paths = {name: source for name, source in given.items() if is_path(source)}
            options = {"device": device, "tp": tp, "allow_adapter_loading": True, **options}
            self._server = ServerProcess(model, paths, options, program=program, log=log)
            url = self._server.url
        elif options or device is not None or tp is not None:
            raise TypeError(f"a server that runs takes no options: {', '.join(options) or 'device, tp'}")
        else:
            self._pushed = dict(given)
        assert url is not None
        self.url = url
        self._client = Client(Address.parse(url), key=key, connections=connections)
        self._connections = connections
        self._started: asyncio.Task[None] | None = None

    async def __aenter__(self) -> AsyncLLM:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Waits until the model is loaded, and pushes the adapters that are tensors. The first call does it, too."""
        if self._started is None:
            self._started = asyncio.ensure_future(self._start())
        await asyncio.shield(self._started)

    async def _start(self) -> None:
        if self._server is not None:
            await self._until_ready(self._server)
        for name, source in self._pushed.items():
            if is_path(source):
                await self._load(name, source)
            else:
                await self._push(name, adapter_body(source))

    async def _until_ready(self, server: ServerProcess) -> None:
        """Until the model is loaded. If it can't be, the error has the server's words."""
        while True:
            ended = await asyncio.to_thread(server.describe_end)
            if ended is not None:
                raise StartError(ended)
            with contextlib.suppress(MotleyError):  # it does not listen yet, or loads the model
                await self._client.get("/readyz")
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def close(self) -> None:
        if self._started is not None:
            self._started.cancel()
        self._client.close()
        if self._server is not None:
            await asyncio.to_thread(self._server.close)

    # Answers.

    async def generate(self, prompts: Prompt | Sequence[Prompt],
                       sampling_params: SamplingParams | Sequence[SamplingParams] | None = None, *,
                       adapter: Adapter | Sequence[Adapter] = None) -> list[RequestOutput]:
        read = read_prompts(prompts)
        params = one_each(sampling_params, len(read), "sampling_params")
        adapters = one_each(adapter, len(read), "adapters")
        return await self._many([functools.partial(self._generate, *each)
                                 for each in zip(read, params, adapters, strict=True)])

    async def chat(self, messages: Conversation | Sequence[Conversation],
                   sampling_params: SamplingParams | Sequence[SamplingParams] | None = None, *,
                   adapter: Adapter | Sequence[Adapter] = None, tools: Sequence[Mapping[str, Any]] | None = None,
                   tool_choice: Any = None, chat_template_kwargs: Mapping[str, Any] | None = None) -> list[RequestOutput]:
        conversations = read_conversations(messages)
        params = one_each(sampling_params, len(conversations), "sampling_params")
        adapters = one_each(adapter, len(conversations), "adapters")
        shared = chat_fields(tools, tool_choice, chat_template_kwargs)
        return await self._many([functools.partial(self._chat, chat_body(*each) | shared)
                                 for each in zip(conversations, params, adapters, strict=True)])

    async def score(self, prompts: Prompt | Sequence[Prompt], *, adapter: Adapter | Sequence[Adapter] = None,
                    top: int = 0) -> list[ScoreOutput]:
        read = read_prompts(prompts)
        params = SamplingParams(max_tokens=0, prompt_logprobs=top)
        adapters = one_each(adapter, len(read), "adapters")
        answers = await self._many([functools.partial(self._generate, prompt, params, each)
                                    for prompt, each in zip(read, adapters, strict=True)])
        return [read_score(answer) for answer in answers]

    async def stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None, *,
                     adapter: Adapter = None) -> AsyncGenerator[CompletionOutput, None]:
        """What is new of an answer, as it comes. Leaving the iteration ends the request."""
        await self.start()
        read = await self._with_ids(read_prompt(prompt))
        async with contextlib.aclosing(self._stream(GENERATE, generate_body(read, sampling_params, adapter))) as pieces:
            async for piece in pieces:
                yield piece

    async def stream_chat(self, messages: Conversation, sampling_params: SamplingParams | None = None, *,
                          adapter: Adapter = None, tools: Sequence[Mapping[str, Any]] | None = None, tool_choice: Any = None,
                          chat_template_kwargs: Mapping[str, Any] | None = None) -> AsyncGenerator[CompletionOutput, None]:
        await self.start()
        body = chat_body(messages, sampling_params, adapter) | chat_fields(tools, tool_choice, chat_template_kwargs)
        async with contextlib.aclosing(self._stream(CHAT, body)) as pieces:
            async for piece in pieces:
                yield piece

    # Adapters.

    async def push_adapter(self, name: str, source: Any, config: Any = None, *, version: str | None = None,
                           expected_version: str | None = None, on_replace: str | None = None,
                           pinned: bool | None = None) -> AdapterInfo:
        await self.start()
        return await self._push(name, adapter_body(source, config), version=version, expected_version=expected_version,
                                on_replace=on_replace, pinned=pinned)

    async def load_adapter(self, name: str, path: str | os.PathLike[str], *, replace: bool = False) -> AdapterInfo:
        await self.start()
        return await self._load(name, path, replace=replace)

    async def unload_adapter(self, name: str) -> None:
        await self.start()
        await self._client.ask("DELETE", adapter_path(name))

    async def adapters(self) -> list[AdapterInfo]:
        await self.start()
        return [read_adapter(each) for each in (await self._client.get("/v1/adapters"))["data"]]

    # Tokens.

    async def encode(self, text: str) -> list[int]:
        await self.start()
        return (await self._with_ids(ReadPrompt(text, None))).token_ids or []

    async def decode(self, token_ids: Sequence[int]) -> str:
        await self.start()
        return str((await self._client.post("/detokenize", {"tokens": list(token_ids)}))["prompt"])

    # Requests.

    async def _many(self, calls: Sequence[Any]) -> list[Any]:
        await self.start()
        try:
            return await in_order(calls, self._connections)
        except MotleyError as error:
            if self._server is None or isinstance(error, RequestError):
                raise
            ended = await asyncio.to_thread(self._server.describe_end, END_SECONDS)
            if ended is None:
                raise
            raise MotleyError(ended) from error

    async def _with_ids(self, prompt: ReadPrompt) -> ReadPrompt:
        if prompt.token_ids is not None:
            return prompt
        return ReadPrompt(prompt.text, (await self._client.post("/tokenize", {"prompt": prompt.text}))["tokens"])

    async def _generate(self, prompt: ReadPrompt, params: SamplingParams | None, adapter: Adapter) -> RequestOutput:
        read = await self._with_ids(prompt)
        return read_answer(await self._client.post(GENERATE, generate_body(read, params, adapter)), read)

    async def _chat(self, body: Mapping[str, Any]) -> RequestOutput:
        return read_answer(await self._client.post(CHAT, body), ReadPrompt(None, None))

    async def _stream(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[CompletionOutput, None]:
        async with contextlib.aclosing(self._client.stream(path, body)) as events:
            async for event in events:
                for choice in event["choices"]:
                    yield read_choice(choice)

    async def _push(self, name: str, body: Sequence[bytes | memoryview], **options: Any) -> AdapterInfo:
        return read_adapter(await self._client.ask("PUT", adapter_path(name, options), body,
                                                   content_type="application/octet-stream", expects=True))

    async def _load(self, name: str, path: Any, *, replace: bool = False) -> AdapterInfo:
        body = {"lora_name": name, "lora_path": os.path.abspath(path), "load_inplace": replace}
        await self._client.post("/v1/load_lora_adapter", body)
        return read_adapter(await self._client.get(adapter_path(name)))


def generate_body(prompt: ReadPrompt, params: SamplingParams | None, adapter: Adapter) -> dict[str, Any]:
    params = params or SamplingParams()
    fields = params.fields() | {"return_tokens_as_token_ids": True}
    if params.logprobs is not None:
        fields["logprobs"] = params.logprobs
    return {"token_ids": prompt.token_ids, "sampling_params": fields, "output_mode": "text", **adapter_fields(adapter)}


def chat_body(messages: Conversation, params: SamplingParams | None, adapter: Adapter) -> dict[str, Any]:
    """Without parameters what `generation_config.json` of the model says holds, and the answer goes to its end."""
    body: dict[str, Any] = {"messages": list(messages), "return_token_ids": True, **adapter_fields(adapter)}
    if params is None:
        return body
    if params.logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": params.logprobs, "return_tokens_as_token_ids": True}
    return body | params.fields()


def chat_fields(tools: Any, tool_choice: Any, template: Any) -> dict[str, Any]:
    fields = {"tools": tools, "tool_choice": tool_choice, "chat_template_kwargs": template}
    return {name: value for name, value in fields.items() if value is not None}


def read_adapter(card: Mapping[str, Any]) -> AdapterInfo:
    return AdapterInfo(card.get("name") or card["id"], card["version"], card["bytes"], card["state"], card.get("checksum"))
