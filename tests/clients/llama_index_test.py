"""llama-index, by its class for servers like OpenAI's."""

import asyncio
import typing

import pydantic
from harness import KEY, ClientTest, main
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike


class Forecast(pydantic.BaseModel):
    """The weather of the next days."""

    city: typing.Annotated[str, pydantic.Field(max_length=12)]
    days: typing.Annotated[int, pydantic.Field(ge=1, le=14)]


class LlamaIndex(ClientTest):
    def llm(self, **fields):
        return OpenAILike(**{"model": "demo", "api_base": self.v1, "api_key": KEY, "is_chat_model": True,
                             "is_function_calling_model": True, "context_window": 16384, "temperature": 0,
                             "max_tokens": 32} | fields)

    def expected(self, **fields):
        return self.chat(messages=[{"role": "user", "content": "wisdom"}], max_tokens=32, **fields)

    def test_the_page(self):
        page = self.run_page("LlamaIndex")
        self.assertEqual(page["text"], self.expected(model="cynic"))
        self.assert_streamed(page["pieces"], page["text"])

    def test_texts(self):
        answer = self.llm(is_chat_model=False).complete("wisdom").text
        self.assertEqual(answer, self.server.post("/v1/completions", {
            "model": "demo", "prompt": "wisdom", "temperature": 0, "max_tokens": 32})["choices"][0]["text"])

    def test_forms(self):
        for llm in (self.llm(max_tokens=200), self.llm(max_tokens=200, should_use_structured_outputs=True)):
            answer = llm.as_structured_llm(Forecast).chat([ChatMessage("wisdom")])
            self.assertIsInstance(answer.raw, Forecast)

    def test_a_call(self):
        def forecast(place: typing.Literal["north", "south"]) -> str:
            """The weather of a place."""
            return f"rain in the {place}"

        llm, tool = self.llm(max_tokens=200), FunctionTool.from_defaults(forecast)
        answer = llm.chat_with_tools([tool], user_msg="wisdom", tool_required=True)
        call, *_ = llm.get_tool_calls_from_response(answer)
        self.assertEqual(call.tool_name, "forecast")
        self.assertRegex(tool(**call.tool_kwargs).content, "rain in the (north|south)")

    def test_without_waiting(self):
        async def ask():
            llm = self.llm()
            return await asyncio.gather(*(llm.achat([ChatMessage("wisdom")]) for _ in range(4)))

        self.assertEqual({answer.message.content for answer in asyncio.run(ask())}, {self.expected()})

    def test_log_probabilities(self):
        answer = self.llm(logprobs=True, top_logprobs=2, max_tokens=4).chat([ChatMessage("wisdom")])
        self.assertEqual(len(answer.logprobs), 4)


if __name__ == "__main__":
    main()
