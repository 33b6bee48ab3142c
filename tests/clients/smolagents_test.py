"""smolagents."""

import json

from harness import CITY_SCHEMA, KEY, ClientTest, main
from smolagents import OpenAIModel, ToolCallingAgent, tool
from smolagents.models import ChatMessage, MessageRole

CHAT = [{"role": "user", "content": "wisdom"}]
MESSAGES = [ChatMessage(role=MessageRole.USER, content="wisdom")]

@tool
def forecast(place: str) -> str:
    """The weather of a place.

    Args:
        place: where
    """
    return f"rain in {place}"

class Smolagents(ClientTest):
    def model(self, **fields):
        return OpenAIModel(**{"model_id": "demo", "api_base": self.v1, "api_key": KEY, "temperature": 0,
                              "max_tokens": 32} | fields)

    def expected(self, **fields):
        return self.chat(messages=CHAT, max_tokens=32, **fields)

    def test_the_page(self):
        page = self.run_page("smolagents")
        self.assertEqual(page["text"], self.expected(model="cynic"))

    def test_text_and_increments(self):
        self.assertEqual(self.model()(MESSAGES).content, self.expected())
        self.assert_streamed([delta.content for delta in self.model().generate_stream(MESSAGES)], self.expected())

    def test_forms(self):
        form = {"type": "json_schema", "json_schema": {"name": "forecast", "strict": True, "schema": CITY_SCHEMA}}
        self.assert_forecast(json.loads(self.model(max_tokens=80)(MESSAGES, response_format=form).content))

    def test_an_agent_calls_its_tools(self):
        # Its prompt has thousands of tokens, and its tools' strings no bound: what it does with them is the model's.
        agent = ToolCallingAgent(tools=[forecast], model=self.model(max_tokens=300), max_steps=2, verbosity_level=0)
        agent.run("wisdom")
        steps = [step for step in agent.memory.steps if getattr(step, "tool_calls", None)]
        for step in steps:
            self.assertIn(step.tool_calls[0].name, ("forecast", "final_answer"))

if __name__ == "__main__":
    main()
