"""Anthropic's own client."""

import anthropic
from harness import CITY_SCHEMA, KEY, ClientTest, main

CHAT = [{"role": "user", "content": "wisdom"}]
GREEDY = {"temperature": 0}  # no argument of its own any more
TOOL = {"name": "forecast", "description": "the weather of the next days", "input_schema": CITY_SCHEMA}


class Anthropic(ClientTest):
    def setUp(self):
        self.client = anthropic.Anthropic(base_url=self.url, api_key=KEY)
        self.addCleanup(self.client.close)

    def create(self, **fields):
        return self.client.messages.create(
            **{"model": "demo", "messages": CHAT, "max_tokens": 32, "extra_body": GREEDY} | fields)

    def test_the_page(self):
        page = self.run_page("Anthropic")
        self.assertEqual(page["text"], self.chat(model="cynic", messages=CHAT, max_tokens=32))
        self.assert_streamed(page["pieces"], page["text"])
        self.assertEqual(page["tokens"].input_tokens, page["message"].usage.input_tokens)

    def test_a_message_is_whole(self):
        message = self.create()
        self.assertEqual((message.type, message.role, message.model), ("message", "assistant", "demo"))
        self.assertEqual([block.type for block in message.content], ["text"])
        self.assertEqual((message.stop_reason, message.usage.output_tokens), ("max_tokens", 32))

    def test_stop_sequences_and_system_prompts(self):
        text = self.create().content[0].text
        stop = text[8:11]
        stopped = self.create(stop_sequences=[stop])
        self.assertEqual(stopped.content[0].text, text[: text.index(stop)])
        self.assertEqual((stopped.stop_reason, stopped.stop_sequence), ("stop_sequence", stop))
        told = self.create(system=[{"type": "text", "text": "speak of rain"}])
        system = {"role": "system", "content": "speak of rain"}
        self.assertEqual(told.content[0].text, self.chat(messages=[system, *CHAT], max_tokens=32))

    def test_a_stream_has_the_events_of_a_message(self):
        with self.client.messages.stream(model="demo", messages=CHAT, max_tokens=32, extra_body=GREEDY) as stream:
            events = [event.type for event in stream if event.type != "ping"]
            message = stream.get_final_message()
        self.assertEqual(message.content[0].text, self.create().content[0].text)
        self.assertEqual(message.stop_reason, "max_tokens")
        self.assertEqual(events[0], "message_start")
        self.assertEqual(events[-1], "message_stop")
        self.assertGreater(events.count("content_block_delta"), 3)

    def test_a_call_and_its_result(self):
        message = self.create(tools=[TOOL], tool_choice={"type": "tool", "name": "forecast"}, max_tokens=200)
        self.assertEqual(message.stop_reason, "tool_use")
        calls = [block for block in message.content if block.type == "tool_use"]
        self.assertTrue(calls)
        for call in calls:
            self.assertEqual(call.name, "forecast")
            self.assert_forecast(call.input)
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": "rain"} for call in calls]
        answer = self.create(tools=[TOOL], messages=[*CHAT, {"role": "assistant", "content": message.content},
                                                     {"role": "user", "content": results}])
        self.assertEqual(answer.content[0].type, "text")

    def test_calls_stream(self):
        with self.client.messages.stream(
                model="demo", messages=CHAT, max_tokens=200, extra_body=GREEDY, tools=[TOOL],
                tool_choice={"type": "any", "disable_parallel_tool_use": True}) as stream:
            pieces = [event.partial_json for event in stream if event.type == "input_json"]
            message = stream.get_final_message()
        self.assertGreater(len(pieces), 1)
        self.assert_forecast(message.content[-1].input)

    def test_errors_are_of_their_classes(self):
        with self.assertRaises(anthropic.AuthenticationError):
            anthropic.Anthropic(base_url=self.url, api_key="another").messages.create(
                model="demo", messages=CHAT, max_tokens=4)
        with self.assertRaises(anthropic.NotFoundError):
            self.create(model="nobody")
        with self.assertRaises(anthropic.BadRequestError) as long:
            self.create(messages=[{"role": "user", "content": "word " * 20000}])
        self.assertEqual(long.exception.body["error"]["type"], "invalid_request_error")


if __name__ == "__main__":
    main()
