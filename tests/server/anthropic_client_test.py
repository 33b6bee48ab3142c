"""`motley serve` as Anthropic's own client sees it: anthropic_client_test.py MOTLEY GOLDEN"""

import sys
import tempfile
import unittest
from pathlib import Path

import anthropic
from jiter import from_json

import tiny_model
from server_process import SMALL, ServerProcess

MOTLEY, GOLDEN = Path(sys.argv.pop(1)), Path(sys.argv.pop(1))
KEY = "a-key-of-ours"
ASK = [{"role": "user", "content": "hello"}]


def tool(name: str, properties: dict) -> dict:
    return {"name": name, "description": f"a tool: {name}", "input_schema": {
        "type": "object", "additionalProperties": False, "required": list(properties),
        "properties": properties}}


SET = tool("set", {"on": {"type": "boolean"}})
PAINT = tool("paint", {"color": {"enum": ["red", "green"]}})


class AnthropicClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        folder = Path(cls.scratch.name) / "tiny"
        tiny_model.make(GOLDEN, folder)
        keys = Path(cls.scratch.name) / "keys.txt"
        keys.write_text(KEY + "\n")
        cls.server = ServerProcess(MOTLEY, folder, *SMALL, "--api-key-file", keys,
                                   "--adapter", f"attention={folder}/adapters/attention")
        cls.client = anthropic.Anthropic(base_url=cls.server.url, api_key=KEY, max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        status = cls.server.end()
        assert status == 0, f"status {status}: {cls.server.last_lines()}"
        cls.server.close()
        cls.scratch.cleanup()

    @staticmethod
    def fields(**fields) -> dict:
        """What the package has no name for goes into `extra`."""
        extra = {"temperature": 0, "seed": 1} | fields.pop("extra", {})
        return {"model": "tiny", "messages": ASK, "max_tokens": 12, "extra_body": extra} | fields

    def ask(self, **fields):
        return self.client.messages.create(**self.fields(**fields))

    def streamed(self, **fields):
        with self.client.messages.stream(**self.fields(**fields)) as stream:
            kinds = [event.type for event in stream]
            return stream.get_final_message(), kinds

    def assert_same(self, message, whole):
        """All but the ids, which are new each time, and what of the prompt came from the cache."""
        def plain(answer):
            fields = answer.model_dump(exclude={"id"})
            usage = fields["usage"]
            prompt = usage.pop("input_tokens") + usage.pop("cache_read_input_tokens")
            return fields | {"prompt": prompt, "content": [{k: v for k, v in block.items()
                                          if k not in ("id", "parsed_output")}
                                         for block in fields["content"]]}
        self.assertEqual(plain(message), plain(whole))

    def test_a_message_is_what_its_types_say(self):
        answer = self.ask(system="be brief")
        self.assertTrue(answer.id.startswith("msg_"))
        self.assertEqual((answer.type, answer.role, answer.model), ("message", "assistant", "tiny"))
        self.assertEqual([block.type for block in answer.content], ["text"])
        self.assertEqual((answer.stop_reason, answer.stop_sequence), ("max_tokens", None))
        self.assertEqual(answer.usage.output_tokens, 12)
        self.assertIsNotNone(answer._request_id)
        self.assertNotEqual(self.ask(model="attention", system="be brief").content, answer.content)

    def test_a_stream_adds_up_to_the_whole_message(self):
        for fields in ({}, {"system": "be brief", "max_tokens": 40},
                       {"tools": [SET, PAINT], "tool_choice": {"type": "any"},
                        "extra": {"seed": 11, "temperature": 1}, "max_tokens": 60}):
            whole = self.ask(**fields)
            message, kinds = self.streamed(**fields)
            self.assert_same(message, whole)
            self.assertEqual(kinds[0], "message_start")
            self.assertEqual(kinds[-3:], ["content_block_stop", "message_delta", "message_stop"])

    def test_a_stream_comes_piece_by_piece(self):
        with self.client.messages.stream(**self.fields(max_tokens=20)) as stream:
            pieces = list(stream.text_stream)
            self.assertGreater(len(pieces), 3)
            self.assertEqual("".join(pieces), stream.get_final_text())

    def test_tools_go_there_and_back(self):
        for choice in ({"type": "any"}, {"type": "tool", "name": "paint"}):
            answer = self.ask(tools=[SET, PAINT], max_tokens=300, extra={"seed": 3, "temperature": 1},
                              tool_choice=choice | {"disable_parallel_tool_use": True})
            self.assertEqual(answer.stop_reason, "tool_use")
            [call] = [block for block in answer.content if block.type == "tool_use"]
            self.assertTrue(call.id.startswith("toolu_"))
            self.assertIn((call.name, list(call.input)), (("set", ["on"]), ("paint", ["color"])))
            if choice["type"] == "tool":
                self.assertEqual(call.name, "paint")
            result = {"type": "tool_result", "tool_use_id": call.id,
                      "content": [{"type": "text", "text": "done"}]}
            again = self.ask(tools=[SET, PAINT], messages=[
                *ASK, {"role": "assistant", "content": answer.content},
                {"role": "user", "content": [result, {"type": "text", "text": "thanks"}]}])
            self.assertGreater(again.usage.input_tokens + again.usage.cache_read_input_tokens,
                               answer.usage.input_tokens)

    def test_calls_that_are_cut_off_read_alike_in_both(self):
        note = tool("note", {
            "kinds": {"type": "array", "minItems": 3, "items": {"enum": ["one", "two"]}},
            "inner": {"type": "object", "required": ["n", "on"], "additionalProperties": False,
                      "properties": {"n": {"type": "integer"}, "on": {"type": "boolean"}}},
            "text": {"type": "string"}})
        seen = set()
        for tokens in range(2, 60, 3):
            fields = {"tools": [note], "tool_choice": {"type": "tool", "name": "note"},
                      "max_tokens": tokens, "extra": {"seed": 3, "temperature": 1}}
            whole = self.ask(**fields)
            message, _ = self.streamed(**fields)
            self.assert_same(message, whole)
            seen |= {str(block.input) for block in whole.content}
        self.assertGreater(len(seen), 2)

    def test_stop_sequences_say_which(self):
        text = self.ask(max_tokens=30).content[0].text
        stop = text[4:6]
        for answer in (self.ask(max_tokens=30, stop_sequences=["\x00", stop]),
                       self.streamed(max_tokens=30, stop_sequences=["\x00", stop])[0]):
            self.assertEqual((answer.stop_reason, answer.stop_sequence), ("stop_sequence", stop))
            self.assertEqual(answer.content[0].text, text[:text.index(stop)])

    def test_a_count_is_what_a_request_uses(self):
        for fields in ({}, {"system": [{"type": "text", "text": "be brief"}]},
                       {"tools": [SET, PAINT], "tool_choice": {"type": "any"}},
                       {"tools": [SET]}, {"thinking": {"type": "disabled"}}):
            count = self.client.messages.count_tokens(model="tiny", messages=ASK, **fields)
            usage = self.ask(**fields).usage
            self.assertEqual(count.input_tokens, usage.input_tokens +
                             usage.cache_read_input_tokens + usage.cache_creation_input_tokens)

    def test_output_follows_its_schema(self):
        schema = {"type": "object", "additionalProperties": False, "required": ["yes"],
                  "properties": {"yes": {"type": "boolean"}}}
        answer = self.ask(max_tokens=60, output_config={
            "format": {"type": "json_schema", "schema": schema}})
        self.assertEqual(answer.stop_reason, "end_turn")
        self.assertIn(from_json(answer.content[0].text.encode()), ({"yes": True}, {"yes": False}))

    def test_errors_are_the_clients_own(self):
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.ask(messages=[{"role": "user", "content": [
                {"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}]}])
        self.assertEqual(caught.exception.body["error"]["type"], "invalid_request_error")
        self.assertIn("messages[0].content[0].type", caught.exception.body["error"]["message"])
        self.assertEqual(caught.exception.body["request_id"], caught.exception.request_id)
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.ask(messages=[{"role": "user", "content": "long " * 1000}])
        self.assertIn("prompt is too long", caught.exception.body["error"]["message"])
        with self.assertRaises(anthropic.NotFoundError):
            self.ask(model="nobody")
        with self.assertRaises(anthropic.NotFoundError):
            self.client.messages.batches.list()
        with self.assertRaises(anthropic.AuthenticationError) as caught:
            self.client.with_options(api_key="another").messages.create(**self.fields())
        self.assertEqual(caught.exception.body["error"]["type"], "authentication_error")

    def test_a_bearer_token_is_as_good_as_a_key(self):
        with anthropic.Anthropic(base_url=self.server.url, api_key=None, auth_token=KEY,
                                 max_retries=0) as client:
            self.assertEqual(client.messages.create(**self.fields()).role, "assistant")


if __name__ == "__main__":
    unittest.main()
