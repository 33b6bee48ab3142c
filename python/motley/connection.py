"""HTTP/1.1 over asyncio's streams: one connection, and a pool of them."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import http.client
import io
import ssl
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Union

from .address import Address
from .errors import MotleyError

Buffer = Union[bytes, memoryview]

HEAD_BYTES = 64 * 1024  # of an answer, and of a line between chunks
PIECE_BYTES = 256 * 1024  # that are read or written at once
CONNECT_SECONDS = 30.0
IDLE_SECONDS = 20.0  # that a connection is kept; a server closes it later


class Answer:
    """An answer whose head has come. Its body is read once."""

    def __init__(self, status: int, headers: Mapping[str, str], reader: asyncio.StreamReader) -> None:
        self.status = status
        self.headers = headers
        self.whole = False  # the body has been read to its end
        self._reader = reader

    @property
    def keeps_connection(self) -> bool:
        bounded = "content-length" in self.headers or self._chunked
        return self.whole and bounded and self.headers.get("connection", "").lower() != "close"

    @property
    def _chunked(self) -> bool:
        return self.headers.get("transfer-encoding", "").lower() == "chunked"

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self.pieces()])

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body, as it comes."""
        if self.status in (204, 304):
            pass
        elif self._chunked:
            async for piece in self._chunks():
                yield piece
        elif "content-length" in self.headers:
            async for piece in self._bytes(int(self.headers["content-length"])):
                yield piece
        else:
            while piece := await self._reader.read(PIECE_BYTES):
                yield piece
        self.whole = True

    async def _chunks(self) -> AsyncIterator[bytes]:
        while size := int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16):
            async for piece in self._bytes(size):
                yield piece
            await self._reader.readexactly(2)
        while await self._reader.readuntil(b"\r\n") != b"\r\n":
            pass  # trailers

    async def _bytes(self, left: int) -> AsyncIterator[bytes]:
        while left > 0:
            piece = await self._reader.read(min(left, PIECE_BYTES))
            if not piece:
                raise asyncio.IncompleteReadError(b"", left)
            left -= len(piece)
            yield piece


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.idle_since = 0.0

    @classmethod
    async def open(cls, address: Address) -> Connection:
        try:
            if address.path is not None:
                opening = asyncio.open_unix_connection(address.path, limit=HEAD_BYTES)
            else:
                context = ssl.create_default_context() if address.tls else None
                opening = asyncio.open_connection(address.host, address.port, limit=HEAD_BYTES, ssl=context)
            return cls(*await asyncio.wait_for(opening, CONNECT_SECONDS))
        except (OSError, asyncio.TimeoutError) as error:
            reason = str(error) or f"no answer within {CONNECT_SECONDS:.0f} s"
            raise MotleyError(f"can't connect to {address}: {reason}") from error

    @property
    def usable(self) -> bool:
        return not self._reader.at_eof() and time.monotonic() - self.idle_since < IDLE_SECONDS

    async def exchange(self, head: bytes, body: Sequence[Buffer], *, expects: bool) -> tuple[Answer, bool]:
        """The answer, and whether all of the request was sent. With `expects` the body waits for `100 Continue`. An answer
        may come before the body has been sent: then the rest is not."""
        self._writer.write(head)
        writing = None if expects else asyncio.ensure_future(self._write(body))
        try:
            while True:
                status, headers = await self._read_head()
                if status == 100 and writing is None:
                    writing = asyncio.ensure_future(self._write(body))
                if status >= 200:
                    sent = writing is not None and writing.done() and writing.exception() is None
                    return Answer(status, headers, self._reader), sent
        finally:
            if writing is not None and not writing.done():
                writing.cancel()
            if writing is not None:
                with contextlib.suppress(OSError, asyncio.CancelledError):
                    await writing

    async def _write(self, body: Sequence[Buffer]) -> None:
        for buffer in body:
            for start in range(0, len(buffer), PIECE_BYTES):
                self._writer.write(buffer[start:start + PIECE_BYTES])
                await self._writer.drain()
        await self._writer.drain()

    async def _read_head(self) -> tuple[int, Mapping[str, str]]:
        text = await self._reader.readuntil(b"\r\n\r\n")
        line, _, fields = text.partition(b"\r\n")
        words = line.split(None, 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            raise MotleyError(f"no HTTP server: it answers {line[:80]!r}")
        headers = http.client.parse_headers(io.BytesIO(fields))
        return int(words[1]), {name.lower(): value for name, value in headers.items()}

    def close(self) -> None:
        self._writer.close()


class ConnectionPool:
    """At most `limit` connections at once, kept from one request to the next."""

    def __init__(self, address: Address, limit: int, headers: Mapping[str, str]) -> None:
        self._address = address
        self._headers = headers
        self._places = asyncio.Semaphore(limit)
        self._idle: collections.deque[Connection] = collections.deque()

    @contextlib.asynccontextmanager
    async def request(self, method: str, path: str, body: Sequence[Buffer] = (), *, content_type: str = "",
                      expects: bool = False) -> AsyncIterator[Answer]:
        head = self._head(method, path, sum(len(each) for each in body), content_type, expects)
        async with self._places:
            connection = self._kept() or await Connection.open(self._address)
            keep = False
            try:
                answer, sent = await connection.exchange(head, body, expects=expects)
                yield answer
                keep = sent and answer.keeps_connection
            except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
                raise MotleyError(f"the connection to {self._address} broke off: the server has ended, or closed it"
                                  ) from error
            finally:
                if keep:
                    connection.idle_since = time.monotonic()
                    self._idle.append(connection)
                else:
                    connection.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _kept(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
            connection.close()
        return None

    def _head(self, method: str, path: str, length: int, content_type: str, expects: bool) -> bytes:
        lines = [f"{method} {self._address.prefix}{path} HTTP/1.1", f"Host: {self._address.authority}"]
        lines += [f"{name}: {value}" for name, value in self._headers.items()]
        if length or method in ("POST", "PUT"):
            lines.append(f"Content-Length: {length}")
        if content_type:
            lines.append(f"Content-Type: {content_type}")
        if expects:
            lines.append("Expect: 100-continue")
        return "\r\n".join([*lines, "", ""]).encode("latin-1")
