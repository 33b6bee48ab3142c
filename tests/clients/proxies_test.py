"""nginx and HAProxy in front of the server, where they are installed."""

import contextlib
import shutil
import socket
import subprocess
import unittest

import harness
import httpx
from harness import ClientTest, ServerProcess, main
from http_test import BODY, HEADERS, increment


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


class Proxies(ClientTest):
    def nginx(self, url: str, port: int) -> list:
        site = self.written("nginx", url, port)
        whole = self.scratch / "whole.conf"
        paths = "".join(f"{name}_temp_path {self.scratch}/{name};" for name in
                        ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        whole.write_text(f"daemon off; pid {self.scratch}/nginx.pid; error_log stderr; events {{}}\n"
                         f"http {{ access_log off; {paths} include {site}; }}\n")
        return ["nginx", "-p", self.scratch, "-c", whole]

    def haproxy(self, url: str, port: int) -> list:
        return ["haproxy", "-db", "-f", self.written("haproxy", url, port)]

    def written(self, language: str, url: str, port: int):
        """The page's configuration, for this server."""
        text = self.blocks("Behind a proxy", language)[0].replace(self.url, url)
        text = text.replace(harness.PAGE_URL.removeprefix("http://"), url.removeprefix("http://"))
        path = self.scratch / f"{language}.conf"
        path.write_text(text.replace(":8080", f":{port}"))
        return path

    @contextlib.contextmanager
    def client_of(self, command, url: str, path: str = ""):
        """Of the proxy that `command` says how to run before that server."""
        port = free_port()
        with open(self.scratch / "proxy.log", "w") as log:
            proxy = subprocess.Popen(command(url, port), stdout=log, stderr=subprocess.STDOUT)
        try:
            transport = httpx.HTTPTransport(retries=8)  # until it listens
            with httpx.Client(base_url=f"http://127.0.0.1:{port}{path}", timeout=60, transport=transport) as client:
                yield client
        finally:
            proxy.terminate()
            proxy.wait(60)

    def ask_through(self, command):
        """The proxy's answers are the server's, and its streams come as they are written."""
        with self.client_of(command, self.url, "/v1") as client:
            client.headers = HEADERS
            whole = client.post("/chat/completions", json=BODY).json()["choices"][0]["message"]["content"]
            self.assertEqual(whole, self.chat(messages=BODY["messages"], max_tokens=32))
            with client.stream("POST", "/chat/completions", json=BODY | {"stream": True}) as response:
                lines = list(response.iter_lines())
            self.assert_streamed([increment(line) for line in lines], whole)
            long = {"max_tokens": 16000, "ignore_eos": True, "stream": True}
            with client.stream("POST", "/chat/completions", json=BODY | long) as response:
                next(line for line in response.iter_lines() if increment(line))
                self.assertIn("motley_sequences_running 1", self.server.get("/metrics").replace(".0", ""))
            self.assertEqual(client.get("/models", headers={"authorization": "Bearer none"}).status_code, 401)

    def ask_for_the_page(self, command):
        """A server without keys answers under the proxy's own name where it trusts the proxy, and only there."""
        for options, status in (((), 403), (("--trusted-proxies", "127.0.0.1"), 200)):
            server = ServerProcess(harness.MOTLEY, self.server.model, "--device", "cpu", "--kv-memory", "64M",
                                   "--adapter-memory", "16M", "--name", "demo", *options)
            self.addCleanup(server.close)
            with self.client_of(command, server.url) as client:
                client.headers["host"] = "models.example.org"
                page = client.get("/")
                self.assertEqual((page.status_code, "<html" in page.text), (status, status == 200), page.text)
                answer = client.post("/v1/chat/completions", json=BODY)
                self.assertEqual(answer.status_code, status, answer.text)
            self.assertEqual(server.end(), 0, server.last_lines())

    @unittest.skipUnless(shutil.which("nginx"), "no nginx here")
    def test_nginx(self):
        self.ask_through(self.nginx)

    @unittest.skipUnless(shutil.which("nginx"), "no nginx here")
    def test_nginx_before_a_server_without_keys(self):
        self.ask_for_the_page(self.nginx)

    @unittest.skipUnless(shutil.which("haproxy"), "no haproxy here")
    def test_haproxy(self):
        self.ask_through(self.haproxy)

    @unittest.skipUnless(shutil.which("haproxy"), "no haproxy here")
    def test_haproxy_before_a_server_without_keys(self):
        self.ask_for_the_page(self.haproxy)


if __name__ == "__main__":
    main()
