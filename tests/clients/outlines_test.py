"""outlines, as a client of OpenAI and as one of vLLM."""

import asyncio
import json
import re
import typing

import openai
import outlines
import pydantic
from harness import KEY, ClientTest, main
from outlines.types import CFG, Regex


class Forecast(pydantic.BaseModel):
    city: typing.Annotated[str, pydantic.Field(max_length=12)]
    days: typing.Annotated[int, pydantic.Field(ge=1, le=14)]


class Outlines(ClientTest):
    def setUp(self):
        self.client = openai.OpenAI(base_url=self.v1, api_key=KEY)
        self.addCleanup(self.client.close)
        self.vllm = outlines.from_vllm(self.client, "demo")

    def ask(self, output_type, **fields):
        return self.vllm("wisdom", output_type, **{"temperature": 0, "max_tokens": 80} | fields)

    def test_the_page(self):
        page = self.run_page("Outlines")
        self.assertIn(page["colour"], ("red", "green", "blue"))
        self.assertRegex(page["date"], r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")

    def test_text_and_increments(self):
        whole = self.ask(None, max_tokens=32)
        self.assertEqual(whole, self.chat(messages=[{"role": "user", "content": "wisdom"}], max_tokens=32))
        self.assert_streamed(list(self.vllm.stream("wisdom", temperature=0, max_tokens=32)), whole)

    def test_forms(self):
        for model in (self.vllm, outlines.from_openai(self.client, "demo")):
            text = model("wisdom", Forecast, temperature=0, max_tokens=80)
            Forecast.model_validate_json(text)

    def test_kinds(self):
        self.assertIn(self.ask(typing.Literal["red", "green"]), ("red", "green"))
        self.assertIn(self.ask(bool), ("True", "False"))
        self.assertTrue(re.fullmatch("[a-c]{3}", self.ask(Regex("[a-c]{3}"))))
        self.assertIn(self.ask(CFG('root ::= "yes" | "no"')), ("yes", "no"))
        self.assertIn(json.loads(self.ask(outlines.types.JsonSchema({"enum": [1, 2]}))), (1, 2))

    def test_forms_in_streams(self):
        text = "".join(self.vllm.stream("wisdom", Forecast, temperature=0, max_tokens=80))
        Forecast.model_validate_json(text)

    def test_without_waiting(self):
        async def ask():
            async with openai.AsyncOpenAI(base_url=self.v1, api_key=KEY) as client:
                model = outlines.from_vllm(client, "demo")
                return await asyncio.gather(*(model("wisdom", Forecast, temperature=0, max_tokens=80) for _ in range(4)))

        for text in asyncio.run(ask()):
            Forecast.model_validate_json(text)

    def test_what_is_wrong_is_said(self):
        with self.assertRaises(outlines.exceptions.OutlinesError):
            self.vllm("word " * 20000)


if __name__ == "__main__":
    main()
