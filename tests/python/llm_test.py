"""motley.LLM and motley.AsyncLLM over a demo model: answers, adapters, errors."""

import asyncio
import json
import math
import os
import tempfile
import unittest
from pathlib import Path

import numpy as np
from harness import ADAPTERS, MODEL, OPTIONS, main, read_tensors

import motley
from motley import SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=12)
HELLO = [{"role": "user", "content": "hello"}]


def tensors_of(folder: Path) -> tuple[dict[str, np.ndarray], dict]:
    """An adapter's tensors and its configuration."""
    return (read_tensors((folder / "adapter_model.safetensors").read_bytes()),
            json.loads((folder / "adapter_config.json").read_text()))


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.llm = motley.LLM(MODEL, {"jargon": ADAPTERS / "jargon", "cynic": ADAPTERS / "cynic"}, **OPTIONS)

    @classmethod
    def tearDownClass(cls):
        cls.llm.close()

    def text(self, prompt, **how) -> str:
        return self.llm.generate(prompt, GREEDY, **how)[0].outputs[0].text


class Answers(Case):
    def test_texts_and_ids_are_the_same_prompts(self):
        ids = self.llm.encode("The sea")
        self.assertEqual(self.llm.decode(ids), "The sea")
        text, listed, both = self.llm.generate(["The sea", ids, {"prompt_token_ids": ids, "prompt": "mine"}], GREEDY)
        self.assertEqual([each.prompt for each in (text, listed, both)], ["The sea", None, "mine"])
        for each in (text, listed, both):
            self.assertEqual((each.prompt_token_ids, each.outputs[0].token_ids), (ids, text.outputs[0].token_ids))
        self.assertEqual(self.llm.decode(text.outputs[0].token_ids), text.outputs[0].text)
        self.assertEqual(text.outputs[0].finish_reason, "length")
        self.assertTrue(text.finished and text.outputs[0].finished())

    def test_many_prompts_come_back_in_order(self):
        prompts = [f"{number} is" for number in range(300)]
        together = self.llm.generate(prompts, GREEDY, adapter=["jargon", None, "cynic"] * 100)
        self.assertEqual([each.prompt for each in together], prompts)
        for number in (0, 1, 2, 299):
            adapter = ("jargon", None, "cynic")[number % 3]
            self.assertEqual(together[number].outputs[0].text, self.text(prompts[number], adapter=adapter))

    def test_nothing_is_answered_with_nothing(self):
        self.assertEqual(self.llm.generate([]), [])

    def test_parameters_are_obeyed(self):
        two = self.llm.generate("The sea", SamplingParams(n=2, seed=7, max_tokens=5))[0].outputs
        self.assertEqual([each.index for each in two], [0, 1])
        self.assertEqual([each.token_ids for each in two], [each.token_ids for each in self.llm.generate(
            "The sea", SamplingParams(n=2, seed=7, max_tokens=5))[0].outputs])
        whole = self.text("The sea")
        stopped = self.llm.generate("The sea", SamplingParams(temperature=0, stop=[whole[6:9]]))[0].outputs[0]
        self.assertEqual((stopped.text, stopped.stop_reason, stopped.finish_reason), (whole[:6], whole[6:9], "stop"))
        end = self.llm.encode(whole)[1]
        by_id = self.llm.generate("The sea", SamplingParams(temperature=0, stop_token_ids=[end]))[0].outputs[0]
        self.assertEqual((by_id.stop_reason, by_id.token_ids[-1]), (end, end))
        form = self.llm.generate("The sea", SamplingParams(structured_outputs={"choice": ["calm", "deep"]}))[0].outputs[0]
        self.assertIn(form.text, ("calm", "deep"))
        long = self.llm.generate("The sea", SamplingParams(max_tokens=None, ignore_eos=True, temperature=0))[0]
        self.assertEqual(len(long.prompt_token_ids) + len(long.outputs[0].token_ids), 1024)

    def test_log_probabilities_are_by_token(self):
        answer = self.llm.generate("The sea", SamplingParams(temperature=0, max_tokens=4, logprobs=3, prompt_logprobs=1))[0]
        output = answer.outputs[0]
        self.assertEqual(len(output.logprobs), 4)
        for token, found in zip(output.token_ids, output.logprobs, strict=True):
            self.assertEqual((next(iter(found)), found[token].rank, len(found)), (token, 1, 3))
            self.assertEqual(found[token].decoded_token, self.llm.decode([token]))
            self.assertEqual(sorted((each.logprob for each in found.values()), reverse=True),
                             [each.logprob for each in found.values()])
        self.assertAlmostEqual(output.cumulative_logprob, sum(found[token].logprob for token, found in
                                                              zip(output.token_ids, output.logprobs, strict=True)))
        self.assertIsNone(answer.prompt_logprobs[0])
        for token, found in zip(answer.prompt_token_ids[1:], answer.prompt_logprobs[1:], strict=True):
            self.assertIn(token, found)
        drawn = self.llm.generate("The sea", SamplingParams(max_tokens=30, seed=1, temperature=3.0, logprobs=0))[0].outputs[0]
        self.assertEqual([list(found) for found in drawn.logprobs], [[token] for token in drawn.token_ids])

    def test_scores_are_what_generation_says(self):
        output = self.llm.generate("The sea", SamplingParams(temperature=0, max_tokens=6, logprobs=0), adapter="jargon")[0]
        ids = output.prompt_token_ids + output.outputs[0].token_ids
        mine, base = self.llm.score([ids, ids], adapter=["jargon", None], top=2)
        self.assertEqual(mine.token_ids, ids)
        self.assertIsNone(mine.token_logprobs[0])
        for token, value, found in zip(output.outputs[0].token_ids, mine.token_logprobs[-6:], output.outputs[0].logprobs,
                                       strict=True):
            self.assertAlmostEqual(value, found[token].logprob, places=4)
        self.assertAlmostEqual(mine.logprob, sum(mine.token_logprobs[1:]))
        self.assertNotAlmostEqual(mine.logprob, base.logprob, places=2)
        self.assertIsNotNone(mine.adapter_version)
        self.assertIsNone(base.adapter_version)
        self.assertTrue(all(len(found) in (2, 3) for found in mine.top_logprobs[1:]))

    def test_a_chat_has_messages(self):
        one, other = self.llm.chat([HELLO, HELLO], SamplingParams(temperature=0, max_tokens=8, logprobs=1),
                                   adapter=[None, "cynic"])
        self.assertEqual(one.outputs[0].message, {"role": "assistant", "content": one.outputs[0].text})
        self.assertNotEqual(one.outputs[0].text, other.outputs[0].text)
        self.assertEqual(len(one.outputs[0].logprobs), 8)
        self.assertEqual(self.llm.decode(one.outputs[0].token_ids), one.outputs[0].text)
        self.assertEqual(self.llm.chat(HELLO, GREEDY)[0].outputs[0].text[:20], one.outputs[0].text[:20])
        self.assertIn(self.llm.chat(HELLO)[0].outputs[0].finish_reason, ("stop", "length"))

    def test_streams_are_the_answer_in_pieces(self):
        pieces = list(self.llm.stream("The sea", GREEDY))
        self.assertGreater(len(pieces), 3)
        self.assertEqual("".join(piece.text for piece in pieces), self.text("The sea"))
        self.assertEqual(pieces[-1].finish_reason, "length")
        pieces = list(self.llm.stream_chat(HELLO, GREEDY, adapter="cynic"))
        self.assertEqual("".join(piece.text for piece in pieces), self.llm.chat(HELLO, GREEDY, adapter="cynic")[0].outputs[0].text)
        for _ in range(40):  # each ends its request: the next ones are not kept waiting
            for _ in self.llm.stream("The sea", SamplingParams(max_tokens=None, ignore_eos=True)):
                break

    def test_a_mix_of_adapters_answers(self):
        self.assertEqual(self.text("The sea", adapter={"jargon": 1.0}), self.text("The sea", adapter="jargon"))
        self.assertEqual(self.text("The sea", adapter={"jargon": 0.0}), self.text("The sea"))
        version = self.llm.generate("The sea", GREEDY, adapter={"jargon": 0.5, "cynic": 0.5})[0].adapter_version
        self.assertEqual(len(version.split(",")), 2)

    def test_errors_name_the_prompt_and_have_the_servers_words(self):
        with self.assertRaises(motley.RequestError) as caught:
            self.llm.generate(["a", [10**6], "b"], GREEDY)
        self.assertEqual((caught.exception.index, caught.exception.status), (1, 400))
        self.assertRegex(str(caught.exception), "^prompt 1: .*1000000")
        with self.assertRaises(motley.RequestError) as caught:
            self.llm.generate("a", GREEDY, adapter="jargn")
        self.assertEqual((caught.exception.index, caught.exception.status), (None, 404))
        self.assertIn("jargon", caught.exception.message)
        with self.assertRaisesRegex(motley.RequestError, "temperature"):
            list(self.llm.stream("a", SamplingParams(temperature=-1)))
        with self.assertRaisesRegex(motley.RequestError, "maximum context length"):
            self.llm.chat([{"role": "user", "content": "word " * 3000}])


class Adapters(Case):
    def test_tensors_are_pushed(self):
        tensors, config = tensors_of(ADAPTERS / "jargon")
        pushed = self.llm.push_adapter("policy@1", tensors, config, version="step-1")
        self.assertEqual((pushed.name, pushed.version, pushed.state), ("policy@1", "step-1", "ready"))
        self.assertEqual(len(pushed.checksum), 64)
        answer = self.llm.generate("The sea", GREEDY, adapter="policy@1")[0]
        self.assertEqual((answer.adapter_version, answer.outputs[0].text), ("step-1", self.text("The sea", adapter="jargon")))
        nothing = {name: np.zeros_like(tensor) for name, tensor in tensors.items()}
        with self.assertRaises(motley.RequestError) as caught:
            self.llm.push_adapter("policy@1", nothing, config, version="step-2", expected_version="step-0")
        self.assertEqual((caught.exception.status, caught.exception.code), (409, "conflict"))
        self.llm.push_adapter("policy@1", nothing, config, version="step-2", expected_version="step-1")
        answer = self.llm.generate("The sea", GREEDY, adapter="policy@1")[0]
        self.assertEqual((answer.adapter_version, answer.outputs[0].text), ("step-2", self.text("The sea")))
        self.llm.unload_adapter("policy@1")
        self.assertNotIn("policy@1", [each.name for each in self.llm.adapters()])

    def test_a_push_that_is_refused_names_the_tensor(self):
        tensors, config = tensors_of(ADAPTERS / "jargon")
        name, tensor = next(iter(tensors.items()))
        with self.assertRaises(motley.RequestError) as caught:
            self.llm.push_adapter("broken", tensors | {name: np.full_like(tensor, np.nan)}, config)
        self.assertEqual(caught.exception.status, 400)
        self.assertIn(name, caught.exception.message)

    def test_folders_are_loaded_and_replaced(self):
        loaded = self.llm.load_adapter("voice", os.path.relpath(ADAPTERS / "fortune"))
        self.assertEqual((loaded.name, loaded.state), ("voice", "ready"))
        with self.assertRaisesRegex(motley.RequestError, "already been loaded"):
            self.llm.load_adapter("voice", ADAPTERS / "record")
        replaced = self.llm.load_adapter("voice", ADAPTERS / "record", replace=True)
        self.assertNotEqual(replaced.version, loaded.version)
        with self.assertRaisesRegex(motley.RequestError, "404"):
            self.llm.load_adapter("other", "/no/such/folder")
        self.llm.unload_adapter("voice")

    def test_adapters_of_a_start_are_folders_and_tensors(self):
        with motley.LLM(MODEL, {"a": ADAPTERS / "jargon", "b": tensors_of(ADAPTERS / "cynic")}, **OPTIONS) as llm:
            self.assertEqual(sorted(each.name for each in llm.adapters()), ["a", "b"])
            self.assertEqual(llm.generate("The sea", GREEDY, adapter="b")[0].outputs[0].text,
                             self.text("The sea", adapter="cynic"))


class Starts(unittest.TestCase):
    def test_a_start_that_fails_has_the_servers_words(self):
        for model, adapters, options, words in (
                ("/no/such/model", {}, {}, "no such folder .*/no/such/model"),
                (MODEL, {"a": "/no/such/adapter"}, {}, "/no/such/adapter"),
                (MODEL, {}, {"frobnicate": 1}, "--frobnicate"),
                (MODEL, {}, {"device": "tpu"}, "tpu"),
                (MODEL, {"a": ({"x": np.zeros(3, np.float32)}, {"peft_type": "LORA"})}, {}, "status 400")):
            with self.assertRaisesRegex(motley.MotleyError, words):
                motley.LLM(model, adapters, **OPTIONS | options)
        with self.assertRaisesRegex(motley.StartError, "No such file"):
            motley.LLM(MODEL, **OPTIONS | {"program": "/no/such/program"})

    def test_a_call_that_means_nothing_is_refused(self):
        for arguments, options in (((), {}), ((MODEL,), {"url": "http://localhost"})):
            with self.assertRaisesRegex(TypeError, "a model"):
                motley.LLM(*arguments, **options)
        with self.assertRaisesRegex(TypeError, "no options: kv_memory"):
            motley.LLM(url="http://localhost", kv_memory="1G")

    def test_a_closed_one_says_so(self):
        llm = motley.LLM(MODEL, **OPTIONS)
        llm.close()
        llm.close()
        with self.assertRaisesRegex(motley.MotleyError, "closed"):
            llm.generate("a")

    def test_one_that_runs_is_asked_by_its_url(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = Path(folder, "keys")
            keys.write_text("secret\n")
            socket = f"unix:{folder}/s"
            with motley.LLM(MODEL, **OPTIONS) as owner, \
                    motley.LLM(url=owner.url, adapters={"a": ADAPTERS / "jargon"}) as guest:
                self.assertEqual([each.name for each in owner.adapters()], ["a"])
                self.assertEqual(guest.generate("The sea", GREEDY)[0].outputs, owner.generate("The sea", GREEDY)[0].outputs)
            with self.assertRaisesRegex(motley.MotleyError, "can't connect"):
                motley.LLM(url=socket).generate("a")

    def test_the_log_can_be_read(self):
        for options, words in (({}, " start.ready "), ({"log_format": "json"}, '"event":"start.ready"')):
            with tempfile.TemporaryFile("w+") as log:
                with motley.LLM(MODEL, log=log, **OPTIONS, **options) as llm:
                    llm.generate("a", GREEDY)
                log.seek(0)
                self.assertIn(words, log.read())


class Asynchronous(unittest.IsolatedAsyncioTestCase):
    async def test_calls_run_side_by_side(self):
        async with motley.AsyncLLM(MODEL, {"a": ADAPTERS / "jargon"}, **OPTIONS) as llm:
            answers = await asyncio.gather(*(llm.generate(f"{number} is", GREEDY, adapter="a") for number in range(20)),
                                           llm.chat(HELLO, GREEDY), llm.score("The sea"))
            self.assertEqual([answer[0].prompt for answer in answers[:20]], [f"{number} is" for number in range(20)])
            text = "".join([piece.text async for piece in llm.stream("0 is", GREEDY, adapter="a")])
            self.assertEqual(text, answers[0][0].outputs[0].text)
            self.assertTrue(math.isfinite(answers[21][0].logprob))

    async def test_a_call_that_is_cancelled_ends_its_request(self):
        async with motley.AsyncLLM(MODEL, **OPTIONS) as llm:
            begun = asyncio.Event()

            async def endless():
                async for _ in llm.stream("The sea", SamplingParams(max_tokens=None, ignore_eos=True)):
                    begun.set()
                    await asyncio.Event().wait()

            task = asyncio.ensure_future(endless())
            await begun.wait()
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertEqual(len(await llm.generate("The sea", GREEDY)), 1)


if __name__ == "__main__":
    main()
