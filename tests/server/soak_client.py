"""HTTP/1.1 over a socket that stays open from request to request, for the soak's clients and its trainer."""

import asyncio
import json

from soak_requests import Answer, Asked

KEY = "soak"


class Connection:
    def __init__(self, port: int):
        self.port, self.reader, self.writer = port, None, None

    async def send(self, path: str, body: dict | bytes | None = None, method: str = "POST") -> None:
        text = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        kind = "Content-Type: application/json\r\n" if isinstance(body, dict) else ""
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writer.write(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n{kind}"
                          f"Content-Length: {len(text)}\r\n\r\n".encode() + text)
        await self.writer.drain()

    async def head(self) -> tuple[int, dict]:
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        return int(lines[0].split()[1]), fields

    async def body(self, fields: dict) -> bytes:
        if "content-length" in fields:
            return await self.reader.readexactly(int(fields["content-length"]))
        return b"".join([piece async for piece in self.pieces()])

    async def pieces(self):
        while size := int(await self.reader.readline(), 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readline()

    async def ask(self, path: str, body: dict | bytes | None = None, method: str = "POST") -> tuple[int, dict | str]:
        await self.send(path, body, method)
        status, fields = await self.head()
        text = (await self.body(fields)).decode()
        if fields.get("connection") == "close":  # of a refused body the rest is not read
            self.close()
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text

    async def answer(self, asked: Asked, **more) -> Answer:
        """Whether it comes whole or in a stream."""
        await self.send(asked.path, asked.body | more)
        status, fields = await self.head()
        answer = Answer(status, asked.choices())
        if "chunked" in fields.get("transfer-encoding", ""):
            async for event in self.events():
                answer.add(event)
        else:
            answer.add(json.loads(await self.body(fields)))
        return answer

    async def events(self):
        left = b""
        async for piece in self.pieces():
            *events, left = (left + piece).split(b"\n\n")
            for event in events:
                if event != b"data: [DONE]":
                    yield json.loads(event.removeprefix(b"data: "))

    def close(self) -> None:
        if self.writer is not None:
            self.writer.transport.abort()
        self.reader = self.writer = None
