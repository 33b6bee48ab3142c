"""haystack."""

import asyncio
import typing

import pydantic
from harness import CITY_SCHEMA, KEY, ClientTest, main
from haystack import Pipeline
from haystack.components.builders import ChatPromptBuilder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import Tool
from haystack.utils import Secret

CHAT = [{"role": "user", "content": "wisdom"}]
WISDOM = [ChatMessage.from_user("wisdom")]


class Forecast(pydantic.BaseModel):
    city: typing.Annotated[str, pydantic.Field(max_length=12)]
    days: typing.Annotated[int, pydantic.Field(ge=1, le=14)]


class Haystack(ClientTest):
    def generator(self, max_tokens=32, **fields):
        settings = {"temperature": 0, "max_completion_tokens": max_tokens} | fields.pop("generation_kwargs", {})
        return OpenAIChatGenerator(api_key=Secret.from_token(KEY), api_base_url=self.v1, model="demo",
                                   generation_kwargs=settings, **fields)

    def expected(self, **fields):
        return self.chat(messages=CHAT, max_tokens=32, **fields)

    def test_the_page(self):
        self.assertEqual(self.run_page("Haystack")["text"], self.expected(model="cynic"))

    def test_increments(self):
        pieces = []
        answer = self.generator(streaming_callback=lambda chunk: pieces.append(chunk.content)).run(WISDOM)
        self.assert_streamed(pieces, self.expected())
        self.assertEqual(answer["replies"][0].text, self.expected())

    def test_a_pipeline(self):
        pipeline = Pipeline()
        pipeline.add_component("prompt", ChatPromptBuilder([ChatMessage.from_user("{{word}}")], required_variables="*"))
        pipeline.add_component("model", self.generator())
        pipeline.connect("prompt.prompt", "model.messages")
        self.assertEqual(pipeline.run({"prompt": {"word": "wisdom"}})["model"]["replies"][0].text, self.expected())

    def test_forms(self):
        answer = self.generator(200, generation_kwargs={"response_format": Forecast}).run(WISDOM)
        Forecast.model_validate_json(answer["replies"][0].text)

    def test_a_call_and_its_result(self):
        tool = Tool(name="forecast", description="the weather", parameters=CITY_SCHEMA,
                    function=lambda city, days: f"rain in {city} for {days} days")
        settings = {"tool_choice": "required", "parallel_tool_calls": False}
        reply = self.generator(200, tools=[tool], generation_kwargs=settings).run(WISDOM)["replies"][0]
        call, = reply.tool_calls
        self.assertEqual(call.tool_name, "forecast")
        self.assert_forecast(call.arguments)
        result = ChatMessage.from_tool(tool.invoke(**call.arguments), origin=call)
        answer = self.generator(tools=[tool]).run([*WISDOM, reply, result])["replies"][0]
        self.assertTrue(answer.text)

    def test_without_waiting(self):
        async def ask():
            generator = self.generator()
            return await asyncio.gather(*(generator.run_async(WISDOM) for _ in range(4)))

        answers = asyncio.run(ask())
        self.assertEqual({answer["replies"][0].text for answer in answers}, {self.expected()})


if __name__ == "__main__":
    main()
