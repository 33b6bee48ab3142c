"""litellm's gateway between clients and the server."""

import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import jsonschema
import openai
from harness import CITY_SCHEMA, TOOL, ClientTest, main

CHAT = [{"role": "user", "content": "wisdom"}]


class Gateway(ClientTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        (cls.scratch / "config.yaml").write_text(cls.blocks(cls(), "LiteLLM's gateway", "yaml")[0])
        cls.output = open(cls.scratch / "gateway.log", "w")
        cls.gateway = subprocess.Popen(
            [Path(sys.executable).with_name("litellm"), "--config", cls.scratch / "config.yaml", "--host", "127.0.0.1",
             "--port", str(port), "--telemetry", "False"], stdout=cls.output, stderr=subprocess.STDOUT)
        cls.gateway_url = f"http://127.0.0.1:{port}"
        while not cls.is_up():
            if cls.gateway.poll() is not None:
                raise RuntimeError((cls.scratch / "gateway.log").read_text()[-4000:])

    @classmethod
    def is_up(cls) -> bool:
        try:
            with urllib.request.urlopen(cls.gateway_url + "/health/liveliness", timeout=1) as response:
                return response.status == 200
        except OSError:
            return cls.gateway.poll() is not None or bool(cls.wait_a_moment())

    @classmethod
    def wait_a_moment(cls) -> None:
        try:
            cls.gateway.wait(0.2)
        except subprocess.TimeoutExpired:
            pass

    @classmethod
    def tearDownClass(cls):
        cls.gateway.terminate()
        cls.gateway.wait(60)
        cls.output.close()
        super().tearDownClass()

    def setUp(self):
        self.client = openai.OpenAI(base_url=self.gateway_url + "/v1", api_key="sk-gateway", max_retries=0)
        self.addCleanup(self.client.close)

    def ask(self, **fields):
        return self.client.chat.completions.create(
            **{"model": "demo", "messages": CHAT, "temperature": 0, "max_tokens": 32} | fields)

    def expected(self, **fields):
        return self.chat(messages=CHAT, max_tokens=32, **fields)

    def test_text_and_increments(self):
        for model in ("demo", "cynic"):
            self.assertEqual(self.ask(model=model).choices[0].message.content, self.expected(model=model))
            pieces = [chunk.choices[0].delta.content for chunk in self.ask(model=model, stream=True)]
            self.assert_streamed(pieces, self.expected(model=model))

    def test_forms(self):
        form = {"type": "json_schema", "json_schema": {"name": "forecast", "strict": True, "schema": CITY_SCHEMA}}
        text = self.ask(response_format=form, max_tokens=80).choices[0].message.content
        jsonschema.validate(json.loads(text), CITY_SCHEMA)

    def test_calls(self):
        named = {"type": "function", "function": {"name": "forecast"}}
        message = self.ask(tools=[TOOL], tool_choice=named, max_tokens=80).choices[0].message
        self.assert_forecast(json.loads(message.tool_calls[0].function.arguments))

    def test_the_responses_protocol(self):
        answer = self.client.responses.create(model="demo", input="wisdom", temperature=0, max_output_tokens=32)
        self.assertEqual(answer.output_text, self.expected())
        # What one client does wrong keeps the deployment open to others.
        with self.assertRaises(openai.APIStatusError):
            self.client.responses.create(model="demo", input="wisdom", previous_response_id="resp_none")
        self.assertEqual(self.ask().choices[0].message.content, self.expected())

    def test_anthropics_protocol(self):
        body = {"model": "demo", "messages": CHAT, "max_tokens": 32, "temperature": 0}
        request = urllib.request.Request(
            self.gateway_url + "/v1/messages", json.dumps(body).encode(),
            {"x-api-key": "sk-gateway", "content-type": "application/json", "anthropic-version": "2023-06-01"})
        with urllib.request.urlopen(request) as response:
            self.assertEqual(json.load(response)["content"][0]["text"], self.expected())

    def test_errors_pass(self):
        with self.assertRaises(openai.BadRequestError) as long:
            self.ask(messages=[{"role": "user", "content": "word " * 20000}])
        self.assertIn("ContextWindowExceededError", str(long.exception))
        self.assertEqual(self.ask().choices[0].message.content, self.expected())

    def test_its_health_checks_pass(self):
        request = urllib.request.Request(self.gateway_url + "/health", headers={"authorization": "Bearer sk-gateway"})
        with urllib.request.urlopen(request) as response:
            health = json.load(response)
        self.assertEqual((health["healthy_count"], health["unhealthy_count"]), (2, 0), health)


if __name__ == "__main__":
    main()
