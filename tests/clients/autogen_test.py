"""autogen."""

import asyncio
import typing

import pydantic
from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import UserMessage
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import OpenAIChatCompletionClient
from harness import KEY, ClientTest, main

INFO = {"vision": False, "function_calling": True, "json_output": True, "structured_output": True, "family": "unknown"}


class Forecast(pydantic.BaseModel):
    city: typing.Annotated[str, pydantic.Field(max_length=12)]
    days: typing.Annotated[int, pydantic.Field(ge=1, le=14)]


class Autogen(ClientTest):
    def expected(self, **fields):
        return self.chat(messages=[{"role": "user", "content": "wisdom"}], max_tokens=32, **fields)

    def ask(self, act, **fields):
        """Runs `act(client, messages)` in an event loop."""
        async def within():
            client = OpenAIChatCompletionClient(model="demo", base_url=self.v1, api_key=KEY, model_info=INFO,
                                                **{"temperature": 0, "max_tokens": 32} | fields)
            try:
                return await act(client, [UserMessage(content="wisdom", source="user")])
            finally:
                await client.close()

        return asyncio.run(within())

    def test_the_page(self):
        self.assertEqual(self.run_page("AutoGen")["text"], self.expected(model="cynic"))

    def test_text(self):
        answer = self.ask(lambda client, messages: client.create(messages))
        self.assertEqual(answer.content, self.expected())
        self.assertEqual(answer.usage.completion_tokens, 32)

    def test_increments(self):
        async def stream(client, messages):
            return [chunk async for chunk in client.create_stream(messages)]

        *pieces, whole = self.ask(stream)
        self.assert_streamed(pieces, whole.content)
        self.assertEqual(whole.content, self.expected())

    def test_forms(self):
        answer = self.ask(lambda client, messages: client.create(messages, json_output=Forecast), max_tokens=80)
        Forecast.model_validate_json(answer.content)

    def test_an_agent_calls_its_tool(self):
        places = []

        def forecast(place: typing.Literal["north", "south"]) -> str:
            places.append(place)
            return "rain"

        tool = FunctionTool(forecast, description="the weather of a place", strict=True)

        async def run(client, messages):
            answer = await client.create(messages, tools=[tool], tool_choice=tool)
            agent = AssistantAgent("clerk", model_client=client, tools=[tool], system_message=None)
            return answer, await agent.run(task="wisdom")

        answer, run = self.ask(run, max_tokens=200)
        call, *_ = answer.content
        self.assertEqual(call.name, "forecast")
        self.assertRegex(call.arguments, "north|south")
        self.assertTrue(run.messages[-1].content)


if __name__ == "__main__":
    main()
