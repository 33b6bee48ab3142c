"""Where a server listens."""

from __future__ import annotations

import dataclasses
import urllib.parse


@dataclasses.dataclass(frozen=True)
class Address:
    """`path` of a Unix socket, or `host` and `port`. Paths of requests begin with `prefix`."""

    path: str | None = None
    host: str = "localhost"
    port: int = 80
    tls: bool = False
    prefix: str = ""

    @classmethod
    def parse(cls, url: str) -> Address:
        """`http://HOST:PORT`, `https://...`, or `unix:PATH`. A `/v1` at its end, as OpenAI's clients want it, is dropped."""
        if url.startswith("unix:"):
            path = url.removeprefix("unix:")
            if path.startswith("//") and not path.startswith("///"):
                raise ValueError(f"{url!r} is no Unix socket: write unix:PATH")
            return cls(path=path.removeprefix("//"))
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no server: write http://HOST:PORT, https://HOST:PORT or unix:PATH")
        tls = parts.scheme == "https"
        prefix = parts.path.rstrip("/").removesuffix("/v1")
        return cls(host=parts.hostname, port=parts.port or (443 if tls else 80), tls=tls, prefix=prefix)

    @property
    def authority(self) -> str:
        """As the header `Host` has it."""
        if self.path is not None:
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.prefix}"
