"""litellm as a library."""

import asyncio
import json
import typing

import jsonschema
import litellm
import pydantic
from harness import CITY_SCHEMA, KEY, TOOL, ClientTest, main

CHAT = [{"role": "user", "content": "wisdom"}]


class Forecast(pydantic.BaseModel):
    city: typing.Annotated[str, pydantic.Field(max_length=12)]
    days: typing.Annotated[int, pydantic.Field(ge=1, le=14)]


class LiteLlm(ClientTest):
    providers = ("openai", "hosted_vllm")

    def ask(self, provider="openai", **fields):
        return litellm.completion(**{"model": f"{provider}/demo", "api_base": self.v1, "api_key": KEY,
                                     "messages": CHAT, "temperature": 0, "max_tokens": 32} | fields)

    def expected(self, **fields):
        return self.chat(messages=CHAT, max_tokens=32, **fields)

    def test_the_page(self):
        page = self.run_page("LiteLLM")
        self.assertEqual(page["text"], self.expected(model="cynic"))
        self.assert_streamed(page["pieces"], page["text"])
        self.assertIn(json.loads(page["colour"])["name"], ("red", "green", "blue"))

    def test_text_and_increments(self):
        for provider in self.providers:
            with self.subTest(provider=provider):
                self.assertEqual(self.ask(provider).choices[0].message.content, self.expected())
                pieces = [chunk.choices[0].delta.content for chunk in self.ask(provider, stream=True)]
                self.assert_streamed(pieces, self.expected())

    def test_forms(self):
        schema = {"type": "json_schema", "json_schema": {"name": "forecast", "strict": True, "schema": CITY_SCHEMA}}
        for provider in self.providers:
            with self.subTest(provider=provider):
                text = self.ask(provider, response_format=schema, max_tokens=80).choices[0].message.content
                jsonschema.validate(json.loads(text), CITY_SCHEMA)
                text = self.ask(provider, response_format=Forecast, max_tokens=80).choices[0].message.content
                Forecast.model_validate_json(text)

    def test_a_call_and_its_result(self):
        for provider in self.providers:
            with self.subTest(provider=provider):
                named = {"type": "function", "function": {"name": "forecast"}}
                message = self.ask(provider, tools=[TOOL], tool_choice=named, max_tokens=80).choices[0].message
                call, = message.tool_calls
                self.assert_forecast(json.loads(call.function.arguments))
                result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
                answer = self.ask(provider, messages=[*CHAT, message.model_dump(), result], tools=[TOOL])
                self.assertTrue(answer.choices[0].message.content)

    def test_log_probabilities(self):
        content = self.ask(logprobs=True, top_logprobs=2, max_tokens=4).choices[0].logprobs.content
        self.assertEqual([len(token.top_logprobs) for token in content], [2] * 4)

    def test_texts(self):
        answer = litellm.text_completion(model="text-completion-openai/demo", api_base=self.v1, api_key=KEY,
                                         prompt=["wisdom", "money"], temperature=0, max_tokens=8)
        self.assertEqual(len(answer.choices), 2)

    def test_batches(self):
        answers = litellm.batch_completion(
            model="openai/demo", api_base=self.v1, api_key=KEY, messages=[CHAT] * 4, temperature=0, max_tokens=32)
        self.assertEqual({answer.choices[0].message.content for answer in answers}, {self.expected()})

        async def ask():
            return await asyncio.gather(*(litellm.acompletion(
                model="openai/demo", api_base=self.v1, api_key=KEY, messages=CHAT, temperature=0, max_tokens=32)
                for _ in range(4)))

        answers = asyncio.run(ask())
        self.assertEqual({answer.choices[0].message.content for answer in answers}, {self.expected()})

    def test_the_responses_protocol(self):
        answer = litellm.responses(model="openai/demo", api_base=self.v1, api_key=KEY, input="wisdom",
                                   temperature=0, max_output_tokens=32)
        self.assertEqual(answer.output[0].content[0].text, self.expected())

    def test_anthropics_protocol(self):
        answer = litellm.completion(model="anthropic/demo", api_base=self.url, api_key=KEY, messages=CHAT,
                                    temperature=0, max_tokens=32)
        self.assertEqual(answer.choices[0].message.content, self.expected())

    def test_errors_are_of_their_classes(self):
        for provider in self.providers:
            with self.subTest(provider=provider):
                with self.assertRaises(litellm.ContextWindowExceededError):
                    self.ask(provider, messages=[{"role": "user", "content": "word " * 20000}], num_retries=0)
                with self.assertRaises(litellm.NotFoundError):
                    self.ask(provider, model=f"{provider}/nobody")
                with self.assertRaises(litellm.AuthenticationError):
                    self.ask(provider, api_key="another")


if __name__ == "__main__":
    main()
