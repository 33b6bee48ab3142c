"""instructor."""

import asyncio
import typing

import instructor
import openai
import pydantic
from harness import KEY, ClientTest, main


class Forecast(pydantic.BaseModel):
    """The weather of the next days."""

    city: typing.Annotated[str, pydantic.Field(max_length=12)]
    days: typing.Annotated[int, pydantic.Field(ge=1, le=14)]


class Instructor(ClientTest):
    modes = (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA)
    question = {"model": "demo", "messages": [{"role": "user", "content": "wisdom"}], "temperature": 0,
                "max_tokens": 200, "max_retries": 1}

    def client(self, mode):
        return instructor.from_openai(openai.OpenAI(base_url=self.v1, api_key=KEY), mode=mode)

    def test_the_page(self):
        self.assertIn(self.run_page("Instructor")["colour"].name, ("red", "green", "blue"))

    def test_forms_by_every_mode(self):
        for mode in self.modes:
            with self.subTest(mode=mode):
                answer, whole = self.client(mode).chat.completions.create_with_completion(
                    response_model=Forecast, **self.question)
                self.assertIsInstance(answer, Forecast)
                self.assertEqual(whole.model, "demo")

    def test_forms_grow_in_streams(self):
        for mode in self.modes:
            with self.subTest(mode=mode):
                parts = list(self.client(mode).chat.completions.create_partial(response_model=Forecast, **self.question))
                self.assertGreater(len(parts), 3)
                Forecast.model_validate(parts[-1].model_dump())

    def test_lists(self):
        def ask(mode):
            return list(self.client(mode).chat.completions.create(
                response_model=typing.Annotated[list[Forecast], pydantic.Field(min_length=2, max_length=2)],
                **self.question))

        for mode in self.modes:
            with self.subTest(mode=mode):
                self.assertEqual([type(item) for item in ask(mode)], [Forecast] * 2)

    def test_without_waiting(self):
        async def ask():
            client = instructor.from_openai(openai.AsyncOpenAI(base_url=self.v1, api_key=KEY))
            return await asyncio.gather(*(client.chat.completions.create(
                response_model=Forecast, **self.question) for _ in range(4)))

        for answer in asyncio.run(ask()):
            self.assertIsInstance(answer, Forecast)

    def test_the_responses_protocol(self):
        client = instructor.from_openai(openai.OpenAI(base_url=self.v1, api_key=KEY),
                                        mode=instructor.Mode.RESPONSES_TOOLS)
        answer = client.responses.create(model="demo", input="wisdom", temperature=0, max_output_tokens=200,
                                         response_model=Forecast, max_retries=1)
        self.assertIsInstance(answer, Forecast)


if __name__ == "__main__":
    main()
