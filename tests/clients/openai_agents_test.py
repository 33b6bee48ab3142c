"""openai-agents, whose default is the Responses protocol."""

import asyncio
import typing

import openai
import pydantic
from agents import (Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, RunConfig, Runner,
                    function_tool)
from harness import KEY, ClientTest, main

# Answers end by themselves: the client takes a response that is cut off for an error.
CHAT = [{"role": "user", "content": "wisdom"}]


class Forecast(pydantic.BaseModel):
    city: typing.Annotated[str, pydantic.Field(max_length=12)]
    days: typing.Annotated[int, pydantic.Field(ge=1, le=14)]


class OpenAiAgents(ClientTest):
    def models(self):
        # A client keeps to the event loop that it began in.
        yield OpenAIChatCompletionsModel("demo", openai.AsyncOpenAI(base_url=self.v1, api_key=KEY))
        yield OpenAIResponsesModel("demo", openai.AsyncOpenAI(base_url=self.v1, api_key=KEY))

    def agent(self, model, max_tokens=400, **fields):
        settings = ModelSettings(temperature=0, max_tokens=max_tokens, **fields.pop("settings", {}))
        return Agent("demo", model=model, model_settings=settings, **fields)

    def run_agent(self, agent):
        return asyncio.run(Runner.run(agent, "wisdom", max_turns=4, run_config=RunConfig(tracing_disabled=True)))

    def test_the_page(self):
        page = self.run_page("OpenAI Agents SDK")
        self.assertEqual(page["text"], self.chat(model="cynic", messages=CHAT, max_tokens=400))
        self.assertIn(page["colour"].name, ("red", "green", "blue"))

    def test_text(self):
        for model in self.models():
            with self.subTest(model=type(model).__name__):
                self.assertEqual(self.run_agent(self.agent(model)).final_output, self.chat(messages=CHAT, max_tokens=400))

    def test_instructions(self):
        system = {"role": "system", "content": "speak of rain"}
        for model in self.models():
            with self.subTest(model=type(model).__name__):
                answer = self.run_agent(self.agent(model, instructions="speak of rain"))
                self.assertEqual(answer.final_output, self.chat(messages=[system, *CHAT], max_tokens=400))

    def test_forms(self):
        for model in self.models():
            with self.subTest(model=type(model).__name__):
                answer = self.run_agent(self.agent(model, output_type=Forecast))
                self.assertIsInstance(answer.final_output, Forecast)

    def test_a_call_and_its_result(self):
        for model in self.models():
            with self.subTest(model=type(model).__name__):
                calls = []

                @function_tool
                def forecast(place: typing.Literal["north", "south"]) -> str:
                    """The weather of a place."""
                    calls.append(place)
                    return "rain"

                # The first step must call; the next one may answer.
                agent = self.agent(model, tools=[forecast],
                                   settings={"tool_choice": "required", "parallel_tool_calls": False})
                answer = self.run_agent(agent)
                self.assertEqual(len(calls), 1)
                self.assertIn(calls[0], ("north", "south"))
                self.assertTrue(answer.final_output)

    def test_increments(self):
        async def stream(model):
            result = Runner.run_streamed(self.agent(model), "wisdom", run_config=RunConfig(tracing_disabled=True))
            return [event.data.delta async for event in result.stream_events()
                    if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"]

        for model in self.models():
            with self.subTest(model=type(model).__name__):
                self.assert_streamed(asyncio.run(stream(model)), self.chat(messages=CHAT, max_tokens=400))


if __name__ == "__main__":
    main()
