"""Responses as OpenAI's own client sees them, each object and event against its types: openai_responses_test.py MOTLEY GOLDEN"""

import json
import tempfile
import unittest
from pathlib import Path
from typing import Literal

import openai
import pydantic
from openai.types.responses import Response, ResponseStreamEvent

import tiny_model
from openai_client_test import GOLDEN, Server

EVENT = pydantic.TypeAdapter(ResponseStreamEvent)
TOOL = {"type": "function", "name": "set", "description": "sets it", "strict": True, "parameters": {
    "type": "object", "additionalProperties": False, "required": ["on"],
    "properties": {"on": {"type": "boolean"}}}}


class Answer(pydantic.BaseModel):
    mood: Literal["good", "bad"]
    sure: bool


def start(folder: Path) -> tuple[Server, openai.OpenAI]:
    server = Server(folder)
    return server, openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


class Responses(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        plain, thinking = (Path(cls.scratch.name) / name for name in ("tiny", "thinking"))
        tiny_model.make(GOLDEN, plain)
        tiny_model.make(GOLDEN, thinking)
        # A model whose answers begin with thoughts.
        file = thinking / "tokenizer_config.json"
        config = json.loads(file.read_text())
        config["chat_template"] = config["chat_template"].replace(
            "<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n")
        file.write_text(json.dumps(config))
        cls.server, cls.client = start(plain)
        cls.thinking_server, cls.thinking_client = start(thinking)

    @classmethod
    def tearDownClass(cls):
        for client, server in ((cls.client, cls.server), (cls.thinking_client, cls.thinking_server)):
            client.close()
            assert server.end() == 0
        cls.scratch.cleanup()

    def create(self, client=None, **fields) -> Response:
        """Every field is of its type, which the client itself does not check."""
        fields = {"model": "tiny", "input": "hello", "temperature": 0, "max_output_tokens": 12} | fields
        raw = (client or self.client).responses.with_raw_response.create(**fields)
        Response.model_validate_json(raw.text, strict=True)
        return raw.parse()

    def events(self, client=None, **fields) -> list:
        fields = {"model": "tiny", "input": "hello", "temperature": 0, "max_output_tokens": 12} | fields
        with (client or self.client).responses.with_streaming_response.create(**fields, stream=True) as raw:
            lines = raw.text().split("\n")
        names = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        events = [EVENT.validate_json(each, strict=True) for each in data]
        self.assertEqual(names, [event.type for event in events])
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        return events

    def test_a_stream_says_what_the_whole_answer_says(self):
        for fields in ({}, {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
                       {"tools": [TOOL], "tool_choice": "required", "extra_body": {"seed": 5}, "temperature": 1,
                        "parallel_tool_calls": False, "max_output_tokens": 100}):
            with self.subTest(fields=list(fields)):
                whole, events = self.create(**fields), self.events(**fields)
                last = events[-1].response
                self.assertEqual(events[-1].type, f"response.{whole.status}")
                self.assertEqual(last.output_text, whole.output_text)
                for count in ("input_tokens", "output_tokens", "output_tokens_details"):
                    self.assertEqual(getattr(last.usage, count), getattr(whole.usage, count))
                self.assertEqual(
                    [item.model_dump(exclude={"id", "call_id"}) for item in last.output],
                    [item.model_dump(exclude={"id", "call_id"}) for item in whole.output])

    def test_the_answer_is_that_of_a_chat(self):
        chat = self.client.chat.completions.create(
            model="tiny", temperature=0, max_tokens=12, messages=[
                {"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"}])
        response = self.create(instructions="be kind")
        self.assertEqual(response.output_text, chat.choices[0].message.content)
        self.assertEqual(response.usage.input_tokens, chat.usage.prompt_tokens)
        self.assertEqual(response.status, "incomplete")
        self.assertEqual(response.incomplete_details.reason, "max_output_tokens")

    def test_reasoning_is_an_item(self):
        vocabulary = json.loads((Path(self.scratch.name) / "thinking" / "tokenizer.json").read_text())
        ends = {str(token["id"]): -100 for token in vocabulary["added_tokens"]}
        fields = {"client": self.thinking_client, "model": "thinking", "extra_body": {"logit_bias": ends}}
        whole, events = self.create(**fields), self.events(**fields)
        self.assertEqual([item.type for item in whole.output], ["reasoning"])
        self.assertEqual(whole.usage.output_tokens_details.reasoning_tokens, 12)
        text = whole.output[0].content[0].text
        self.assertGreater(len(text), 0)
        deltas = [event.delta for event in events if event.type == "response.reasoning_text.delta"]
        self.assertEqual("".join(deltas), text)
        self.assertGreater(len(deltas), 1)
        self.assertEqual(events[-1].response.output[0].content[0].text, text)

    def test_the_client_puts_a_stream_together(self):
        with self.client.responses.stream(model="tiny", input="hello", temperature=0,
                                          max_output_tokens=400, text_format=Answer) as stream:
            deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
            response = stream.get_final_response()
        self.assertEqual("".join(deltas), response.output_text)
        self.assertIsInstance(response.output_parsed, Answer)

    def test_the_client_parses_what_has_a_form(self):
        response = self.client.responses.parse(model="tiny", input="hello", temperature=0,
                                               max_output_tokens=400, text_format=Answer)
        self.assertEqual(response.status, "completed")
        self.assertIsInstance(response.output_parsed, Answer)

    def test_tools_are_called_and_their_results_come_back(self):
        conversation = [{"role": "user", "content": "set it"}]
        fields = {"tools": [TOOL], "extra_body": {"seed": 5}, "temperature": 1, "parallel_tool_calls": False,
                  "max_output_tokens": 100}
        alone = self.create(input=conversation).usage.input_tokens
        for choice in ({"type": "function", "name": "set"}, "required", {
                "type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "set"}]}):
            first = self.create(input=conversation, tool_choice=choice, **fields)
            call = first.output[-1]
            self.assertEqual((call.type, call.name, call.status), ("function_call", "set", "completed"))
            self.assertIn(json.loads(call.arguments), ({"on": True}, {"on": False}))
            again = conversation + [item.model_dump() for item in first.output] + [
                {"type": "function_call_output", "call_id": call.call_id, "output": "it is set"}]
            second = self.create(input=again, tool_choice="none", **fields)
            self.assertGreater(second.usage.input_tokens, alone)
            self.assertEqual(second.output[0].type, "message")

    def test_errors_are_the_clients_own(self):
        for fields, param in (({"previous_response_id": "resp_1"}, "previous_response_id"),
                              ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
                              ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type")):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.create(**fields)
            self.assertEqual(caught.exception.param, param)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.create(input="long " * 1000)
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        self.assertEqual(caught.exception.param, "input")
        with self.assertRaises(openai.NotFoundError):
            self.create(model="nobody")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.create(text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "odd"}}})
        self.assertEqual(caught.exception.param, "text.format")


if __name__ == "__main__":
    unittest.main()
