"""The routes of a server, as asynchronous calls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import urllib.parse
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from .address import Address
from .connection import Answer, Buffer, ConnectionPool
from .events import error_of, read_events

TRIES = 6  # of a request that the server is too busy for
LONGEST_WAIT = 30.0  # seconds between two of them


class Client:
    """Belongs to the event loop that its first call runs on."""

    def __init__(self, address: Address, *, key: str | None, connections: int) -> None:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._pool = ConnectionPool(address, connections, headers)

    async def get(self, path: str) -> Any:
        return await self.ask("GET", path)

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """A request that is sent again where the server is too busy for it, because nothing has begun then."""
        text = json.dumps(body).encode()
        for left in reversed(range(TRIES)):
            answer, error = await self._ask("POST", path, [text], content_type="application/json")
            if error is None:
                return answer
            if error.status != 429 or error.retry_after is None or left == 0:
                raise error
            await asyncio.sleep(min(error.retry_after, LONGEST_WAIT))

    async def ask(self, method: str, path: str, body: Sequence[Buffer] = (), *, content_type: str = "",
                  expects: bool = False) -> Any:
        answer, error = await self._ask(method, path, body, content_type=content_type, expects=expects)
        if error is not None:
            raise error
        return answer

    async def _ask(self, method: str, path: str, body: Sequence[Buffer], **how: Any) -> tuple[Any, Any]:
        async with self._pool.request(method, path, body, **how) as answer:
            return await _read(answer)

    async def stream(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The events of the answer. Leaving the iteration ends the request."""
        text = json.dumps({**body, "stream": True}).encode()
        async with self._pool.request("POST", path, [text], content_type="application/json") as answer:
            if answer.status != 200:
                raise (await _read(answer))[1]
            async with contextlib.aclosing(read_events(answer.pieces())) as events:
                async for event in events:
                    yield event

    def close(self) -> None:
        self._pool.close()


async def _read(answer: Answer) -> tuple[Any, Any]:
    """What the answer says, and the error that it is."""
    text = await answer.read()
    try:
        said = json.loads(text) if text else None
    except ValueError:
        said = text.decode(errors="replace")
    if 200 <= answer.status < 300:
        return said, None
    wait = answer.headers.get("retry-after", "")
    return None, error_of(answer.status, said, float(wait) if wait.isdigit() else None)


def adapter_path(name: str, options: Mapping[str, Any] = {}) -> str:
    """The path of an adapter's route, with the options that are given."""
    query = urllib.parse.urlencode({key: query_value(value) for key, value in options.items() if value is not None})
    return f"/v1/adapters/{urllib.parse.quote(name, safe='/')}" + (f"?{query}" if query else "")


def query_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
