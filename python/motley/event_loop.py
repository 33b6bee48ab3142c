"""An event loop in a thread of its own, so that code without one can wait for asynchronous calls."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

from .errors import MotleyError

T = TypeVar("T")


class EventLoop:
    """Its calls may come from any thread. They end early if the thread that waits is interrupted."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._process = os.getpid()
        self._thread = threading.Thread(target=_run, args=(self._loop,), name="motley", daemon=True)
        self._thread.start()
        self._stop = weakref.finalize(self, _stop, self._process, self._loop)

    @property
    def usable(self) -> bool:
        """Not after `close()`, and not in a forked process, which does not have the thread."""
        return not self._loop.is_closed() and os.getpid() == self._process

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        if not self.usable:
            call.close()
            raise MotleyError("this LLM is closed" if self._loop.is_closed() else
                              "this LLM belongs to the process that made it: make an LLM(url=...) in each other one")
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items, as they come. An iteration that is given up closes what gives them."""
        try:
            while True:
                try:
                    yield self.run(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            if self.usable:
                self.run(_close(items))

    def close(self) -> None:
        if not self.usable:
            return
        self._stop()
        self._thread.join()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


def _stop(owner: int, loop: asyncio.AbstractEventLoop) -> None:
    if os.getpid() != owner:  # a forked child does not have the thread
        return
    loop.call_soon_threadsafe(loop.stop)


async def _next(items: AsyncIterator[T]) -> T:
    return await items.__anext__()


async def _close(items: AsyncIterator[Any]) -> None:
    if hasattr(items, "aclose"):
        await items.aclose()
