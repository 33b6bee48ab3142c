"""OpenAI's own client."""

import asyncio
import json
import typing

import openai
import pydantic
from harness import CITY_SCHEMA, KEY, TOOL, ClientTest, main

CHAT = [{"role": "user", "content": "wisdom"}]


class Forecast(pydantic.BaseModel):
    city: typing.Annotated[str, pydantic.Field(max_length=12)]
    days: typing.Annotated[int, pydantic.Field(ge=1, le=14)]
    sky: typing.Literal["clear", "grey"]


class OpenAi(ClientTest):
    def setUp(self):
        self.client = openai.OpenAI(base_url=self.v1, api_key=KEY)
        self.addCleanup(self.client.close)

    def create(self, **fields):
        return self.client.chat.completions.create(
            **{"model": "demo", "messages": CHAT, "temperature": 0, "max_tokens": 32} | fields)

    def test_the_page(self):
        page = self.run_page("OpenAI")
        self.assertEqual(page["text"], self.chat(model="cynic", messages=CHAT, max_tokens=32))
        self.assert_streamed(page["pieces"], page["text"])
        self.assertIn(page["colour"].name, ("red", "green", "blue"))
        self.assertEqual(page["response"].status, "incomplete")
        self.assertEqual(page["response"].output_text, page["text"])

    def test_increments_come_while_the_answer_is_written(self):
        stream = self.create(stream=True, max_tokens=16000, extra_body={"ignore_eos": True})
        next(stream)
        self.assertIn("motley_sequences_running 1", self.server.get("/metrics").replace(".0", ""))
        stream.close()

    def test_forms_are_parsed(self):
        answer = self.client.chat.completions.parse(
            model="demo", messages=CHAT, temperature=0, max_tokens=80, response_format=Forecast)
        self.assertIsInstance(answer.choices[0].message.parsed, Forecast)

    def test_forms_are_parsed_in_streams(self):
        with self.client.chat.completions.stream(model="demo", messages=CHAT, temperature=0, max_tokens=80,
                                                 response_format=Forecast) as stream:
            events = [event.type for event in stream]
            answer = stream.get_final_completion()
        self.assertGreater(events.count("content.delta"), 3)
        self.assertIn("content.done", events)
        self.assertIsInstance(answer.choices[0].message.parsed, Forecast)

    def test_a_call_and_its_result(self):
        message = self.create(tools=[TOOL], tool_choice="required", max_tokens=200).choices[0].message
        for call in message.tool_calls:
            self.assertEqual(call.function.name, "forecast")
            self.assert_forecast(json.loads(call.function.arguments))
        results = [{"role": "tool", "tool_call_id": call.id, "content": "rain"} for call in message.tool_calls]
        answer = self.create(messages=[*CHAT, message, *results], tools=[TOOL], tool_choice="none")
        self.assertTrue(answer.choices[0].message.content)

    def test_the_old_form_of_calls(self):
        message = self.create(functions=[TOOL["function"]], function_call={"name": "forecast"},
                              max_tokens=200).choices[0].message
        self.assertEqual(message.function_call.name, "forecast")
        self.assert_forecast(json.loads(message.function_call.arguments))

    def test_responses_in_a_form(self):
        answer = self.client.responses.parse(model="demo", input="wisdom", temperature=0, max_output_tokens=80,
                                             text_format=Forecast)
        self.assertIsInstance(answer.output_parsed, Forecast)
        self.assertEqual(answer.status, "completed")

    def test_responses_stream(self):
        fields = {"model": "demo", "input": "wisdom", "temperature": 0, "max_output_tokens": 32}
        whole = self.client.responses.create(**fields).output_text
        events = list(self.client.responses.create(**fields, stream=True))
        self.assertEqual(events[0].type, "response.created")
        self.assertIn(events[-1].type, ("response.completed", "response.incomplete"))
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
        self.assert_streamed(pieces, whole)

    def test_responses_call_and_take_the_result(self):
        tool = {"type": "function", "name": "forecast", "parameters": CITY_SCHEMA, "strict": True}
        items: list = [{"role": "user", "content": "wisdom"}]
        answer = self.client.responses.create(model="demo", input=items, tools=[tool], tool_choice="required",
                                              temperature=0, max_output_tokens=200)
        calls = [item for item in answer.output if item.type == "function_call"]
        self.assertTrue(calls)
        for call in calls:
            self.assert_forecast(json.loads(call.arguments))
            items += [call, {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}]
        answer = self.client.responses.create(model="demo", input=items, tools=[tool], tool_choice="none",
                                              temperature=0, max_output_tokens=32)
        self.assertTrue(answer.output_text)

    def test_many_at_once(self):
        async def ask():
            async with openai.AsyncOpenAI(base_url=self.v1, api_key=KEY) as client:
                return await asyncio.gather(*(client.chat.completions.create(
                    model=model, messages=CHAT, temperature=0, max_tokens=16)
                    for model in ("demo", "cynic", "jargon") * 8))

        answers = [answer.choices[0].message.content for answer in asyncio.run(ask())]
        self.assertEqual(answers, answers[:3] * 8)
        self.assertEqual(len(set(answers)), 3)

    def test_log_probabilities(self):
        content = self.create(logprobs=True, top_logprobs=2, max_tokens=4).choices[0].logprobs.content
        self.assertEqual(len(content), 4)
        for token in content:
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(token.top_logprobs[0].token, token.token)

    def test_errors_are_of_their_classes(self):
        with self.assertRaises(openai.AuthenticationError):
            openai.OpenAI(base_url=self.v1, api_key="another").models.list()
        with self.assertRaises(openai.NotFoundError):
            self.create(model="nobody")
        with self.assertRaises(openai.BadRequestError) as long:
            self.create(messages=[{"role": "user", "content": "word " * 20000}])
        self.assertEqual(long.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.APIStatusError) as embeddings:
            self.client.embeddings.create(model="demo", input="wisdom")
        self.assertIn(embeddings.exception.status_code, (400, 404))


if __name__ == "__main__":
    main()
