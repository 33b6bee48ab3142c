"""dspy."""

import asyncio
import typing

import dspy
from harness import KEY, ClientTest, main


class Sky(dspy.Signature):
    """Tell the sky."""

    place: str = dspy.InputField()
    sky: typing.Literal["clear", "grey"] = dspy.OutputField()
    days: int = dspy.OutputField()


class Dspy(ClientTest):
    def lm(self, **fields):
        return dspy.LM("openai/demo", api_base=self.v1, api_key=KEY, cache=False,
                       **{"temperature": 0, "max_tokens": 200} | fields)

    def expected(self, **fields):
        return self.chat(messages=[{"role": "user", "content": "wisdom"}], **fields)

    def declared(self, **fields):
        """The server as a provider that can do schemas, by the page's lines."""
        self.run_page("DSPy")
        return dspy.LM("motley/demo", api_key=KEY, cache=False, **{"temperature": 0, "max_tokens": 200} | fields)

    def test_the_page(self):
        page = self.run_page("DSPy")
        self.assertEqual(page["text"], self.expected(model="cynic", max_tokens=200))
        self.assertIn(page["answer"].colour, ("red", "green", "blue"))

    def test_text(self):
        self.assertEqual(self.lm(max_tokens=24)("wisdom"), [self.expected(max_tokens=24)])

    def test_forms(self):
        with dspy.context(lm=self.declared(), adapter=dspy.JSONAdapter()):
            answer = dspy.Predict(Sky)(place="north")
        self.assertIn(answer.sky, ("clear", "grey"))
        self.assertIsInstance(answer.days, int)

    def test_batches(self):
        with dspy.context(lm=self.declared(), adapter=dspy.JSONAdapter()):
            examples = [dspy.Example(place=place).with_inputs("place") for place in ("north", "south", "north")]
            answers = dspy.Predict(Sky).batch(examples, disable_progress_bar=True)
        self.assertEqual([answer.sky in ("clear", "grey") for answer in answers], [True] * 3)

    def test_without_waiting(self):
        async def ask():
            return await asyncio.gather(*(self.lm(max_tokens=24).acall("wisdom") for _ in range(3)))

        self.assertEqual(asyncio.run(ask()), [[self.expected(max_tokens=24)]] * 3)

    def test_the_responses_protocol(self):
        answer, = self.lm(max_tokens=24, model_type="responses")("wisdom")
        text = answer["text"] if isinstance(answer, dict) else answer
        self.assertEqual(text, self.expected(max_tokens=24))

    def test_errors_are_of_their_classes(self):
        with self.assertRaises(dspy.ContextWindowExceededError):
            self.lm(num_retries=0)("word " * 20000)


if __name__ == "__main__":
    main()
