"""pydantic-ai."""

import asyncio
import typing

import pydantic
from harness import KEY, ClientTest, main
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.exceptions import ModelContextWindowExceededError
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

CHAT = [{"role": "user", "content": "wisdom"}]
GREEDY = {"temperature": 0, "max_tokens": 200}


class Forecast(pydantic.BaseModel):
    city: typing.Annotated[str, pydantic.Field(max_length=12)]
    days: typing.Annotated[int, pydantic.Field(ge=1, le=14)]


class PydanticAi(ClientTest):
    def models(self):
        provider = OpenAIProvider(base_url=self.v1, api_key=KEY)
        yield OpenAIChatModel("demo", provider=provider)
        yield OpenAIResponsesModel("demo", provider=provider)
        yield AnthropicModel("demo", provider=AnthropicProvider(base_url=self.url, api_key=KEY))

    def test_the_page(self):
        page = self.run_page("Pydantic AI")
        self.assertEqual(page["text"], self.chat(model="cynic", messages=CHAT, max_tokens=200))
        self.assertIn(page["colour"].name, ("red", "green", "blue"))

    def test_text(self):
        for model in self.models():
            with self.subTest(model=type(model).__name__):
                answer = Agent(model, model_settings={"temperature": 0, "max_tokens": 24}).run_sync("wisdom")
                self.assertEqual(answer.output, self.chat(messages=CHAT, max_tokens=24))
                self.assertEqual(answer.usage.output_tokens, 24)

    def test_forms_as_calls(self):
        for model in self.models():
            with self.subTest(model=type(model).__name__):
                agent = Agent(model, output_type=ToolOutput(Forecast), model_settings=GREEDY)
                self.assertIsInstance(agent.run_sync("wisdom").output, Forecast)

    def test_forms_of_the_server(self):
        # The client knows Anthropic's models by name, and which of them can do this.
        for model in list(self.models())[:2]:
            with self.subTest(model=type(model).__name__):
                agent = Agent(model, output_type=NativeOutput(Forecast), model_settings=GREEDY)
                self.assertIsInstance(agent.run_sync("wisdom").output, Forecast)

    def test_a_call_and_its_result(self):
        for model in self.models():
            with self.subTest(model=type(model).__name__):
                calls = []
                agent = Agent(model, output_type=ToolOutput(Forecast, name="report"), model_settings=GREEDY)

                @agent.tool_plain
                def look(place: typing.Literal["north", "south"]) -> str:
                    """the weather of a place"""
                    calls.append(place)
                    return "rain"

                # Every step makes a call; which, is the model's to say.
                self.assertIsInstance(agent.run_sync("wisdom").output, Forecast)
                self.assertLessEqual(set(calls), {"north", "south"})

    def test_increments(self):
        async def stream(model):
            agent = Agent(model, model_settings={"temperature": 0, "max_tokens": 24})
            async with agent.run_stream("wisdom") as result:
                return [text async for text in result.stream_text(delta=True, debounce_by=None)]

        for model in self.models():
            with self.subTest(model=type(model).__name__):
                self.assert_streamed(asyncio.run(stream(model)), self.chat(messages=CHAT, max_tokens=24))

    def test_errors_are_of_their_classes(self):
        for model in self.models():
            with self.subTest(model=type(model).__name__):
                with self.assertRaises(ModelContextWindowExceededError):
                    Agent(model, model_settings=GREEDY).run_sync("word " * 20000)


if __name__ == "__main__":
    main()
