"""inspect-ai."""

import asyncio
import json

import jsonschema
from harness import CITY_SCHEMA, KEY, ClientTest, main
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig, ResponseSchema, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate
from inspect_ai.tool import ToolFunction, ToolInfo, ToolParams
from inspect_ai.util import JSONSchema


class Inspect(ClientTest):
    providers = ("openai-api/motley/demo", "vllm/demo")

    def model(self, name, **fields):
        return get_model(name, base_url=self.v1, api_key=KEY, memoize=False,
                         config=GenerateConfig(**{"temperature": 0, "max_tokens": 32, "max_retries": 0} | fields))

    def expected(self, **fields):
        return self.chat(messages=[{"role": "user", "content": "wisdom"}], max_tokens=32, **fields)

    def ask(self, name, *words, config=None, **fields):
        async def within():
            async with self.model(name, **config or {}) as model:
                return await model.generate(*words, **fields)

        return asyncio.run(within())

    def test_the_page(self):
        log, = self.run_page("Inspect")["logs"]
        self.assertEqual(log.status, "success", log.error)
        self.assertEqual(log.samples[0].output.completion, self.expected(model="cynic"))

    def test_text(self):
        for name in self.providers:
            with self.subTest(model=name):
                self.assertEqual(self.ask(name, "wisdom").completion, self.expected())

    def test_forms(self):
        schema = ResponseSchema(name="forecast", json_schema=JSONSchema.model_validate(CITY_SCHEMA), strict=True)
        for name in self.providers:
            with self.subTest(model=name):
                answer = self.ask(name, "wisdom", config={"response_schema": schema, "max_tokens": 200})
                jsonschema.validate(json.loads(answer.completion), {**CITY_SCHEMA, "properties": {
                    "city": {"type": "string"}, "days": {"type": "integer"}}})

    def test_a_call(self):
        tool = ToolInfo(name="forecast", description="the weather", parameters=ToolParams.model_validate(
            {"properties": {"place": {"enum": ["north", "south"], "type": "string"}}, "required": ["place"]}))
        for name in self.providers:
            with self.subTest(model=name):
                answer = self.ask(name, "wisdom", tools=[tool], tool_choice=ToolFunction("forecast"),
                                  config={"max_tokens": 200})
                call, *_ = answer.message.tool_calls
                self.assertIn(call.arguments["place"], ("north", "south"))

    def test_a_prompt_that_is_too_long_ends_the_sample_not_the_evaluation(self):
        for name in self.providers:
            with self.subTest(model=name):
                self.assertEqual(self.ask(name, "word " * 20000).stop_reason, "model_length")

    def test_log_probabilities(self):
        answer = self.ask(self.providers[0], "wisdom", config={"logprobs": True, "top_logprobs": 2, "max_tokens": 4})
        self.assertEqual(len(answer.choices[0].logprobs.content), 4)

    def test_many_samples_at_once(self):
        task = Task([Sample(input="wisdom", target="wisdom") for _ in range(8)], solver=generate(), scorer=includes())
        log, = eval(task, self.model(self.providers[0]), log_dir=str(self.scratch / "logs"), display="none",
                    max_connections=8)
        self.assertEqual(log.status, "success", log.error)
        self.assertEqual({sample.output.completion for sample in log.samples}, {self.expected()})


if __name__ == "__main__":
    main()
