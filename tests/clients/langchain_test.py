"""langchain-openai and langchain-anthropic."""

import asyncio
import typing

import openai
import pydantic
from harness import KEY, ClientTest, main
from langchain_anthropic import ChatAnthropic
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI


class Forecast(pydantic.BaseModel):
    """The weather of the next days."""

    city: typing.Annotated[str, pydantic.Field(max_length=12)]
    days: typing.Annotated[int, pydantic.Field(ge=1, le=14)]


@tool(args_schema=Forecast)
def forecast(city: str, days: int) -> str:
    """The weather of the next days."""
    return f"rain in {city} for {days} days"


class LangChain(ClientTest):
    def model(self, **fields):
        return ChatOpenAI(base_url=self.v1, api_key=KEY, **{"model": "demo", "temperature": 0, "max_tokens": 64} | fields)

    def expected(self, **fields):
        return self.chat(messages=[{"role": "user", "content": "wisdom"}], max_tokens=32, **fields)

    def test_the_page(self):
        page = self.run_page("LangChain")
        self.assertEqual(page["text"], self.expected(model="cynic"))
        self.assert_streamed(page["pieces"], page["text"])
        self.assertIn(page["colour"].name, ("red", "green", "blue"))

    def test_batches(self):
        answers = self.model(max_tokens=32).batch(["wisdom", "money", "wisdom"])
        self.assertEqual(answers[0].content, self.expected())
        self.assertEqual(answers[2].content, answers[0].content)
        self.assertNotEqual(answers[1].content, answers[0].content)

    def test_batches_without_waiting(self):
        answers = asyncio.run(self.model(max_tokens=32).abatch(["wisdom"] * 8))
        self.assertEqual({answer.content for answer in answers}, {self.expected()})

    def test_forms_by_every_method(self):
        for method in ("json_schema", "function_calling"):
            form = self.model().with_structured_output(Forecast, method=method)
            self.assertIsInstance(form.invoke("wisdom"), Forecast, method)

    def test_a_call_and_its_result(self):
        question = HumanMessage("wisdom")
        called = self.model(max_tokens=200).bind_tools(
            [forecast], tool_choice="required", parallel_tool_calls=False).invoke([question])
        call, = called.tool_calls
        self.assert_forecast(call["args"])
        result = forecast.invoke(call)
        self.assertIsInstance(result, ToolMessage)
        answer = self.model().bind_tools([forecast]).invoke([question, called, result])
        self.assertTrue(answer.content)

    def test_calls_in_streams(self):
        model = self.model(max_tokens=200).bind_tools([forecast], tool_choice="forecast")
        whole = None
        for chunk in model.stream("wisdom"):
            whole = chunk if whole is None else whole + chunk
        self.assert_forecast(whole.tool_calls[0]["args"])

    def test_the_responses_api(self):
        answer = self.model(use_responses_api=True, max_tokens=32).invoke("wisdom")
        self.assertEqual(answer.text, self.expected())

    def test_log_probabilities_and_usage(self):
        answer = self.model(logprobs=True, top_logprobs=2, max_tokens=4).invoke("wisdom")
        self.assertEqual(len(answer.response_metadata["logprobs"]["content"]), 4)
        self.assertEqual(answer.usage_metadata["output_tokens"], 4)

    def test_texts(self):
        text = OpenAI(base_url=self.v1, api_key=KEY, model="demo", temperature=0, max_tokens=16).invoke("wisdom")
        self.assertEqual(text, self.server.post("/v1/completions", {
            "model": "demo", "prompt": "wisdom", "temperature": 0, "max_tokens": 16})["choices"][0]["text"])

    def test_the_other_protocol(self):
        model = ChatAnthropic(base_url=self.url, api_key=KEY, model="demo", temperature=0, max_tokens=32)
        self.assertEqual(model.invoke("wisdom").text, self.expected())
        self.assert_streamed([chunk.text for chunk in model.stream("wisdom")], self.expected())

    def test_errors_are_of_their_classes(self):
        with self.assertRaises(ContextOverflowError):
            self.model().invoke("word " * 20000)
        with self.assertRaises(openai.NotFoundError):
            self.model(model="nobody").invoke("wisdom")


if __name__ == "__main__":
    main()
