"""Many calls at once, their results in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from .errors import RequestError

T = TypeVar("T")


async def in_order(calls: Sequence[Callable[[], Awaitable[T]]], limit: int) -> list[T]:
    """At most `limit` at once. The first failure ends all, and names the call by its number if there are several."""
    results: list[Any] = [None] * len(calls)
    waiting = iter(enumerate(calls))

    async def work() -> None:
        for index, call in waiting:
            try:
                results[index] = await call()
            except RequestError as error:
                raise (error if len(calls) == 1 else error.at(index)) from None

    workers = [asyncio.ensure_future(work()) for _ in range(min(limit, len(calls)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return results
