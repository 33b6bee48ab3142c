"""aiohttp, httpx and curl: no client of models, only HTTP."""

import asyncio
import gzip
import json
import shutil
import subprocess
import unittest

import aiohttp
import httpx
from harness import KEY, ClientTest, main

BODY = {"model": "demo", "messages": [{"role": "user", "content": "wisdom"}], "temperature": 0, "max_tokens": 32}
HEADERS = {"authorization": f"Bearer {KEY}"}


def increment(line: str) -> str:
    """The text of an event's line, if it has any."""
    if not line.startswith("data: {"):
        return ""
    choices = json.loads(line.removeprefix("data: "))["choices"]
    return (choices[0]["delta"].get("content") or "") if choices else ""


class Http(ClientTest):
    def expected(self):
        return self.chat(messages=BODY["messages"], max_tokens=32)

    def test_the_page(self):
        command = self.blocks("curl", "sh")[0]
        done = subprocess.run(["bash", "-ec", command], capture_output=True, text=True, check=True)
        answer = json.loads(done.stdout)
        self.assertEqual(answer["choices"][0]["message"]["content"], self.chat(
            model="cynic", messages=BODY["messages"], max_tokens=32))

    def test_two_hundred_streams_at_once(self):
        async def stream(session):
            async with session.post(self.v1 + "/chat/completions", json=BODY | {"stream": True}) as response:
                self.assertEqual(response.status, 200)
                lines = [line.decode().strip() async for line in response.content]
            self.assertEqual([line for line in lines if line][-1], "data: [DONE]")
            return "".join(increment(line) for line in lines)

        async def ask():
            connector = aiohttp.TCPConnector(limit=0)
            async with aiohttp.ClientSession(headers=HEADERS, connector=connector) as session:
                return await asyncio.gather(*(stream(session) for _ in range(200)))

        self.assertEqual(set(asyncio.run(ask())), {self.expected()})

    def test_httpx_streams(self):
        with httpx.Client(base_url=self.v1, headers=HEADERS, timeout=60) as client:
            with client.stream("POST", "/chat/completions", json=BODY | {"stream": True}) as response:
                pieces = [increment(line) for line in response.iter_lines()]
        self.assert_streamed(pieces, self.expected())

    def test_httpx_keeps_its_connection(self):
        with httpx.Client(headers=HEADERS, timeout=60, limits=httpx.Limits(max_connections=1)) as client:
            answers = [client.post(self.v1 + "/chat/completions", json=BODY).json() for _ in range(3)]
        self.assertEqual({answer["choices"][0]["message"]["content"] for answer in answers}, {self.expected()})

    def test_bodies_may_be_compressed(self):
        answer = httpx.post(self.v1 + "/chat/completions", content=gzip.compress(json.dumps(BODY).encode()), timeout=60,
                            headers=HEADERS | {"content-encoding": "gzip", "content-type": "application/json"})
        self.assertEqual(answer.json()["choices"][0]["message"]["content"], self.expected())

    def test_paths_with_a_slash_too_many(self):
        for path in ("/v1/models/", "//v1/models", "/v1//models"):
            with self.subTest(path=path):
                self.assertEqual(httpx.get(self.url + path, headers=HEADERS).status_code, 200)

    @unittest.skipUnless(shutil.which("curl"), "no curl here")
    def test_curl_waits_to_be_asked_for_its_body(self):
        body = self.scratch / "body.json"
        body.write_text(json.dumps(BODY | {"user": "x" * 5000}))
        done = subprocess.run(
            ["curl", "-s", "-H", "Expect: 100-continue", "-H", f"Authorization: Bearer {KEY}", "-H",
             "Content-Type: application/json", self.v1 + "/chat/completions", "-d", f"@{body}"],
            capture_output=True, text=True, check=True)
        self.assertEqual(json.loads(done.stdout)["choices"][0]["message"]["content"], self.expected())


if __name__ == "__main__":
    main()
