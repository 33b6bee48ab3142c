"""Server-sent events of a streamed answer."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from .errors import MotleyError, RequestError


async def read_events(pieces: AsyncIterator[bytes]) -> AsyncGenerator[dict[str, Any], None]:
    """The objects of the events up to `[DONE]`. An event that is an error is raised."""
    rest = b""
    done = False
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if done or not line.startswith(b"data:"):
                continue
            data = line[len(b"data:"):].strip()
            if data == b"[DONE]":
                done = True  # what is left of the body is read, so that the connection can be kept
                continue
            event = json.loads(data)
            if "error" in event:
                raise error_of(200, event)
            yield event
    if not done:
        raise MotleyError("the answer broke off before its end")


def error_of(status: int, answer: Any, retry_after: float | None = None) -> RequestError:
    """What an answer in OpenAI's form of errors says."""
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        return RequestError(status, str(answer)[:1000], retry_after=retry_after)
    code = error.get("code")
    return RequestError(status, str(error.get("message", error)), param=error.get("param"),
                        code=None if code is None else str(code), retry_after=retry_after)
