"""nginx and HAProxy in front of the server, where they are installed."""

import shutil
import socket
import subprocess
import unittest

import httpx
from harness import ClientTest, main
from http_test import BODY, HEADERS, increment


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


class Proxies(ClientTest):
    def ask_through(self, command: list, port: int):
        """The proxy's answers are the server's, and its streams come as they are written."""
        with open(self.scratch / "proxy.log", "w") as log:
            proxy = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            transport = httpx.HTTPTransport(retries=8)  # until it listens
            with httpx.Client(base_url=f"http://127.0.0.1:{port}/v1", headers=HEADERS, timeout=60,
                              transport=transport) as client:
                whole = client.post("/chat/completions", json=BODY).json()["choices"][0]["message"]["content"]
                self.assertEqual(whole, self.chat(messages=BODY["messages"], max_tokens=32))
                with client.stream("POST", "/chat/completions", json=BODY | {"stream": True}) as response:
                    lines = list(response.iter_lines())
                self.assert_streamed([increment(line) for line in lines], whole)
                long = {"max_tokens": 16000, "ignore_eos": True, "stream": True}
                with client.stream("POST", "/chat/completions", json=BODY | long) as response:
                    next(line for line in response.iter_lines() if increment(line))
                    self.assertIn("vllm:num_requests_running 1", self.server.get("/metrics").replace(".0", ""))
                self.assertEqual(client.get("/models", headers={"authorization": "Bearer none"}).status_code, 401)
        finally:
            proxy.terminate()
            proxy.wait(60)

    def written(self, language: str, port: int, name: str):
        text = self.blocks("Behind a proxy", language)[0].replace("127.0.0.1:8000", self.url.removeprefix("http://"))
        path = self.scratch / name
        path.write_text(text.replace(":8080", f":{port}"))
        return path

    @unittest.skipUnless(shutil.which("nginx"), "no nginx here")
    def test_nginx(self):
        port = free_port()
        site = self.written("nginx", port, "site.conf")
        whole = self.scratch / "nginx.conf"
        paths = "".join(f"{name}_temp_path {self.scratch}/{name};" for name in
                        ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        whole.write_text(f"daemon off; pid {self.scratch}/nginx.pid; error_log stderr; events {{}}\n"
                         f"http {{ access_log off; {paths} include {site}; }}\n")
        self.ask_through(["nginx", "-p", self.scratch, "-c", whole], port)

    @unittest.skipUnless(shutil.which("haproxy"), "no haproxy here")
    def test_haproxy(self):
        port = free_port()
        self.ask_through(["haproxy", "-db", "-f", self.written("haproxy", port, "haproxy.cfg")], port)


if __name__ == "__main__":
    main()
