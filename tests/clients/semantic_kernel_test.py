"""semantic-kernel."""

import asyncio
import typing

import openai
import pydantic
from harness import KEY, ClientTest, main
from semantic_kernel import Kernel
from semantic_kernel.connectors.ai.function_choice_behavior import FunctionChoiceBehavior
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings
from semantic_kernel.contents import ChatHistory
from semantic_kernel.functions import kernel_function


class Forecast(pydantic.BaseModel):
    city: typing.Annotated[str, pydantic.Field(max_length=12)]
    days: typing.Annotated[int, pydantic.Field(ge=1, le=14)]


class Weather:
    """A plugin that remembers what it was asked."""

    def __init__(self):
        self.places = []

    @kernel_function(description="the weather of a place")
    def forecast(self, north: bool) -> str:
        self.places.append(north)
        return "rain"


class SemanticKernel(ClientTest):
    def expected(self, **fields):
        return self.chat(messages=[{"role": "user", "content": "wisdom"}], max_tokens=32, **fields)

    def ask(self, act, **fields):
        """Runs `act(service, history, settings)` in an event loop with a client of its own."""
        async def within():
            async with openai.AsyncOpenAI(base_url=self.v1, api_key=KEY) as client:
                history = ChatHistory()
                history.add_user_message("wisdom")
                settings = OpenAIChatPromptExecutionSettings(**{"temperature": 0, "max_tokens": 32} | fields)
                return await act(OpenAIChatCompletion(ai_model_id="demo", async_client=client), history, settings)

        return asyncio.run(within())

    def test_the_page(self):
        self.assertEqual(self.run_page("Semantic Kernel")["text"], self.expected(model="cynic"))

    def test_text(self):
        answer = self.ask(lambda service, *rest: service.get_chat_message_content(*rest))
        self.assertEqual(str(answer), self.expected())

    def test_increments(self):
        async def stream(service, *rest):
            return [str(chunk) async for chunk in service.get_streaming_chat_message_content(*rest)]

        self.assert_streamed(self.ask(stream), self.expected())

    def test_forms(self):
        answer = self.ask(lambda service, *rest: service.get_chat_message_content(*rest),
                          response_format=Forecast, max_tokens=80)
        Forecast.model_validate_json(str(answer))

    def test_a_call_and_its_result(self):
        weather, kernel = Weather(), Kernel()
        kernel.add_plugin(weather, "weather")
        answer = self.ask(
            lambda service, *rest: service.get_chat_message_content(*rest, kernel=kernel), max_tokens=200,
            function_choice_behavior=FunctionChoiceBehavior.Required(auto_invoke=True))
        self.assertTrue(weather.places)
        self.assertLessEqual(set(weather.places), {True, False})
        self.assertIsNotNone(answer)


if __name__ == "__main__":
    main()
