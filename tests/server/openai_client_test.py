"""`motley serve` as OpenAI's own client and Prometheus' own parser see it: openai_client_test.py MOTLEY GOLDEN"""

import concurrent.futures
import gzip
import json
import shutil
import subprocess
import sys
import unittest
import urllib.request
from pathlib import Path

import httpx2
import openai
from prometheus_client.parser import text_string_to_metric_families

import tiny_model
from server_process import SMALL, ServerProcess, until

MOTLEY, GOLDEN = Path(sys.argv.pop(1)), Path(sys.argv.pop(1))
PROMPT = "the rain in"
CHAT = [{"role": "user", "content": "hello"}]


class Server(ServerProcess):
    def __init__(self, folder: Path, *options: str):
        super().__init__(MOTLEY, folder, *SMALL, *options)

    def tokens(self, body: dict) -> list[int]:
        status, answer = self.post("/tokenize", body)
        if status != 200:
            raise RuntimeError(answer)
        return json.loads(answer)["tokens"]

    def samples(self) -> dict:
        return {(s.name, tuple(sorted(s.labels.items()))): s.value
                for family in text_string_to_metric_families(self.get("/metrics"))
                for s in family.samples}

    def end(self) -> int:
        status = super().end()
        self.close()
        return status


class OpenAiClient(tiny_model.Case):
    golden = GOLDEN

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        adapters = cls.folder / "adapters"
        cls.server = Server(cls.folder, "--adapter", f"attention={adapters}/attention",
                            "--adapter", f"all={adapters}/all_linear",
                            "--allow-adapter-loading", "--adapter-root", str(adapters),
                            "--port", "0", "--listen", f"unix:{cls.folder}/socket")
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0)

    def test_a_unix_socket_gives_the_same_answers(self):
        asked = {"model": "all", "messages": CHAT, "max_tokens": 8, "temperature": 0}
        transport = httpx2.HTTPTransport(uds=f"{self.folder}/socket")
        with openai.OpenAI(base_url="http://localhost/v1", api_key="none", max_retries=0,
                           http_client=httpx2.Client(transport=transport)) as client:
            whole = client.chat.completions.create(**asked).choices[0].message.content
            pieces = [chunk.choices[0].delta.content or "" for chunk in
                      client.chat.completions.create(**asked, stream=True)]
        self.assertEqual("".join(pieces), whole)
        self.assertEqual(self.client.chat.completions.create(**asked).choices[0].message.content, whole)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        assert cls.server.end() == 0, "a server that was told to end ends well"
        super().tearDownClass()

    def complete(self, **fields):
        fields = {"model": "tiny", "prompt": PROMPT, "temperature": 0, "max_tokens": 12} | fields
        return self.client.completions.create(**fields)

    def test_models_are_the_base_and_its_adapters(self):
        models = {model.id: model.parent for model in self.client.models.list()}
        self.assertEqual(models["tiny"], None)
        self.assertEqual({models["attention"], models["all"]}, {"tiny"})

    def test_logprobs_are_those_of_score(self):
        mixes = [[], [("attention", 1.0)], [("all", 1.0)], [("attention", 0.5), ("all", 0.5)]]
        answers, lines = [], []
        for mix in mixes:
            parts = [{"name": name, "scale": scale} for name, scale in mix]
            answer = self.complete(echo=True, logprobs=2, extra_body={"adapters": parts})
            answers.append(answer.choices[0])
            # The text does not give its tokens back; their numbers do.
            lines.append({"prompt": PROMPT, "adapters": parts} if parts else {"prompt": PROMPT})
        given, found = (Path(self.scratch.name) / name for name in ("in.jsonl", "out.jsonl"))
        given.write_text("".join(json.dumps(line) + "\n" for line in lines))
        adapters = self.folder / "adapters"
        subprocess.run([MOTLEY, "score", self.folder, "--compute", "f32", "--input", given,
                        "--output", found, "--adapter", f"attention={adapters}/attention",
                        "--adapter", f"all={adapters}/all_linear"],
                       check=True, capture_output=True)
        for answer, line in zip(answers, found.read_text().splitlines(), strict=True):
            scored = json.loads(line)["token_logprobs"]
            told = answer.logprobs.token_logprobs[: len(scored)]
            self.assertIsNone(told[0])
            # Both are the same float32 bits, written in decimal.
            for one, other in zip(told[1:], scored[1:], strict=True):
                self.assertAlmostEqual(one, other, delta=2e-7 * abs(other))
        self.assertEqual(len({answer.text for answer in answers}), len(mixes))

    def test_logprobs_of_an_answer_are_whole(self):
        # A bias chooses the tokens: 11 ends the answer, and may only come after the first two.
        prompt, answer = [5, 6, 7], [9, 9, 11]
        fields = {"prompt": prompt, "logprobs": 1, "logit_bias": {"9": 50, "11": 100},
                  "extra_body": {"min_tokens": 2, "stop_token_ids": [11]}}
        given, found = (Path(self.scratch.name) / name for name in ("end.jsonl", "end_out.jsonl"))
        given.write_text(json.dumps({"token_ids": prompt + answer}))
        subprocess.run([MOTLEY, "score", self.folder, "--compute", "f32", "--input", given,
                        "--output", found], check=True, capture_output=True)
        wanted = json.loads(found.read_text())["token_logprobs"][len(prompt):]
        whole = self.complete(**fields).choices[0]
        self.assertEqual(whole.finish_reason, "stop")
        streamed = [logprob for chunk in self.complete(**fields, stream=True)
                    for logprob in chunk.choices[0].logprobs.token_logprobs]
        for told in (whole.logprobs.token_logprobs, streamed):
            for one, other in zip(told, wanted, strict=True):
                self.assertAlmostEqual(one, other, delta=2e-7 * abs(other))

    def test_token_ids_and_scores_of_the_prompt_are_those_of_an_echo(self):
        asked = self.server.tokens({"prompt": PROMPT})
        extra = {"return_token_ids": True, "prompt_logprobs": 3}
        whole = self.complete(echo=True, logprobs=3, extra_body=extra).choices[0]
        self.assertEqual(whole.prompt_token_ids, asked)
        self.assertEqual(len(whole.prompt_logprobs), len(asked))
        self.assertIsNone(whole.prompt_logprobs[0])
        told = whole.logprobs.token_logprobs
        self.assertEqual(len(told), len(asked) + len(whole.token_ids))
        for token, entry, logprob in zip(asked[1:], whole.prompt_logprobs[1:], told[1:]):
            self.assertEqual(entry[str(token)]["logprob"], logprob)
            ranks = sorted(each["rank"] for each in entry.values())
            self.assertEqual(ranks[:3], [1, 2, 3])
            self.assertIn(len(entry), (3, 4))
            # The prompt's own token comes first, and has a rank wherever it stands.
            self.assertEqual(next(iter(entry)), str(token))
            self.assertEqual(len(set(ranks)), len(ranks))
        alone = self.complete(extra_body=extra | {"prompt_logprobs": 0}).choices[0]
        self.assertEqual([entry and entry[str(token)]["logprob"]
                          for token, entry in zip(asked, alone.prompt_logprobs)], told[:len(asked)])
        ids, first = [], None
        for chunk in self.complete(stream=True, extra_body={"return_token_ids": True}):
            ids += chunk.choices[0].token_ids
            first = first or getattr(chunk.choices[0], "prompt_token_ids", None)
        self.assertEqual((first, ids), (asked, whole.token_ids))

    def test_token_ids_and_scores_of_a_chat(self):
        fields = {"model": "tiny", "messages": CHAT, "temperature": 0, "max_tokens": 8}
        extra = {"return_token_ids": True, "skip_special_tokens": False}
        whole = self.client.chat.completions.create(
            **fields, logprobs=True,
            extra_body=extra | {"prompt_logprobs": 1, "return_tokens_as_token_ids": True})
        asked = self.server.tokens({"messages": CHAT})
        self.assertEqual(whole.prompt_token_ids, asked)
        self.assertEqual(len(whole.prompt_logprobs), len(asked))
        ids = whole.choices[0].token_ids
        self.assertEqual([token.token for token in whole.choices[0].logprobs.content],
                         [f"token_id:{id}" for id in ids])
        streamed, first = [], None
        for chunk in self.client.chat.completions.create(**fields, stream=True, extra_body=extra):
            streamed += getattr(chunk.choices[0], "token_ids", None) or []
            first = first or getattr(chunk, "prompt_token_ids", None)
        self.assertEqual((first, streamed), (asked, ids))

    def test_tokens_become_the_text_that_they_came_from(self):
        for text in (PROMPT, "he said \"no\"\n{}"):
            ids = self.server.tokens({"prompt": text, "add_special_tokens": False})
            status, answer = self.server.post("/detokenize", {"model": "all", "tokens": ids})
            self.assertEqual((status, json.loads(answer)["prompt"]), (200, text))
        info = json.loads(self.server.get("/tokenizer_info"))
        self.assertIn("tokenizer_class", info)
        self.assertNotIn("name_or_path", info)

    def test_a_compressed_body_is_read(self):
        body = {"model": "tiny", "prompt": PROMPT, "temperature": 0, "max_tokens": 12}
        request = urllib.request.Request(
            self.server.url + "/v1/completions/", gzip.compress(json.dumps(body).encode()),
            headers={"Content-Encoding": "gzip"})
        with urllib.request.urlopen(request) as response:
            text = json.load(response)["choices"][0]["text"]
        self.assertEqual(text, self.complete().choices[0].text)

    def test_adapters_by_name_answer_as_they_do_in_a_list(self):
        named = self.complete(model="attention").choices[0].text
        self.assertEqual(self.complete(model="tiny:attention").choices[0].text, named)
        listed = self.complete(extra_body={"adapters": [{"name": "attention"}]})
        self.assertEqual(listed.choices[0].text, named)
        self.assertNotEqual(self.complete().choices[0].text, named)

    def test_a_stream_says_what_the_whole_answer_says(self):
        whole = self.complete(n=2)
        texts, usage = ["", ""], None
        for chunk in self.complete(n=2, stream=True, stream_options={"include_usage": True}):
            for choice in chunk.choices:
                texts[choice.index] += choice.text
            usage = chunk.usage or usage
        self.assertEqual(texts, [choice.text for choice in whole.choices])
        self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)

    def test_chats_stream_what_they_answer(self):
        fields = {"model": "all", "messages": CHAT, "temperature": 0, "max_completion_tokens": 10}
        whole = self.client.chat.completions.create(**fields, logprobs=True, top_logprobs=3)
        choice = whole.choices[0]
        self.assertEqual(choice.message.role, "assistant")
        self.assertEqual(len(choice.logprobs.content[0].top_logprobs), 3)
        text = ""
        for chunk in self.client.chat.completions.create(**fields, stream=True):
            text += chunk.choices[0].delta.content or ""
        self.assertEqual(text, choice.message.content)

    def test_a_seed_gives_the_same_text_again(self):
        drawn = [self.complete(temperature=1, seed=seed, n=2).choices for seed in (1, 1, 2)]
        texts = [[choice.text for choice in choices] for choices in drawn]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])
        self.assertNotEqual(texts[0][0], texts[0][1])

    def test_output_follows_its_schema(self):
        schema = {"type": "object", "additionalProperties": False, "required": ["yes"],
                  "properties": {"yes": {"type": "boolean"}}}
        answer = self.client.chat.completions.create(
            model="tiny", messages=CHAT, seed=3, max_tokens=40,
            response_format={"type": "json_schema",
                             "json_schema": {"name": "answer", "schema": schema}})
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertIn(json.loads(answer.choices[0].message.content), ({"yes": True}, {"yes": False}))
        chosen = self.complete(extra_body={"guided_choice": ["red", "green"]}).choices[0]
        self.assertIn(chosen.text, ("red", "green"))

    def test_a_call_that_must_be_made_is_made(self):
        tool = {"type": "function", "function": {
            "name": "set", "parameters": {"type": "object", "additionalProperties": False,
                                          "required": ["on"],
                                          "properties": {"on": {"type": "boolean"}}}}}
        named = {"type": "function", "function": {"name": "set"}}
        for choice, reason in ((named, "stop"), ("required", "tool_calls")):
            answer = self.client.chat.completions.create(
                model="tiny", messages=CHAT, seed=5, tools=[tool], tool_choice=choice).choices[0]
            self.assertEqual(answer.finish_reason, reason)
            call = answer.message.tool_calls[0].function
            self.assertEqual(call.name, "set")
            self.assertEqual(list(json.loads(call.arguments)), ["on"])

    def test_calls_stream_as_they_are_written_and_follow_their_schemas(self):
        def tool(name, properties):
            return {"type": "function", "function": {"name": name, "parameters": {
                "type": "object", "additionalProperties": False, "required": list(properties),
                "properties": properties}}}

        tools = [tool("set", {"on": {"type": "boolean"}}),
                 tool("name", {"it": {"$ref": "#/$defs/word"}})]
        tools[1]["function"]["parameters"]["$defs"] = {"word": {"type": "string", "maxLength": 40}}
        fields = {"model": "tiny", "messages": CHAT, "seed": 11, "max_tokens": 300, "tools": tools,
                  "tool_choice": "required", "parallel_tool_calls": False}
        whole = self.client.chat.completions.create(**fields).choices[0]
        calls, pieces, reason = {}, 0, None
        for chunk in self.client.chat.completions.create(**fields, stream=True):
            for piece in chunk.choices[0].delta.tool_calls or []:
                if piece.id:
                    calls[piece.index] = [piece.function.name, ""]
                calls[piece.index][1] += piece.function.arguments
                pieces += 1
            reason = chunk.choices[0].finish_reason or reason
        self.assertEqual(reason, "tool_calls")
        self.assertEqual([call.function.name for call in whole.message.tool_calls], [calls[0][0]])
        self.assertEqual(whole.message.tool_calls[0].function.arguments, calls[0][1])
        self.assertGreater(pieces, 1)
        arguments = json.loads(calls[0][1])
        self.assertIn((calls[0][0], list(arguments)), (("set", ["on"]), ("name", ["it"])))

    def test_a_named_call_streams_its_arguments(self):
        tool = {"type": "function", "function": {"name": "set", "parameters": {
            "type": "object", "additionalProperties": False, "required": ["to"],
            "properties": {"to": {"enum": ["red", "green"]}}}}}
        text = ""
        for chunk in self.client.chat.completions.create(
                model="tiny", messages=CHAT, seed=2, tools=[tool], stream=True,
                tool_choice={"type": "function", "function": {"name": "set"}}):
            for piece in chunk.choices[0].delta.tool_calls or []:
                text += piece.function.arguments
        self.assertIn(json.loads(text)["to"], ("red", "green"))

    def test_stop_strings_end_the_text(self):
        text = self.complete().choices[0].text
        stop = text[4:6]
        stopped = self.complete(stop=stop).choices[0]
        self.assertEqual(stopped.text, text[: text.index(stop)])
        self.assertEqual(stopped.finish_reason, "stop")

    def test_choices_under_a_mix_are_those_of_their_own_requests(self):
        # The one with the seed, and others beside it that would show in its tokens.
        mixed = {"extra_body": {"adapters": [{"name": "attention", "scale": 0.5}, {"name": "all"}]}}
        alone = self.complete(temperature=0.8, seed=7, n=3, **mixed)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            beside = [pool.submit(self.complete, temperature=1, seed=100 + i, n=2,
                                  model=("tiny", "attention", "all")[i % 3]) for i in range(7)]
            again = pool.submit(self.complete, temperature=0.8, seed=7, n=3, **mixed).result()
            for answer in beside:
                answer.result()
        self.assertEqual([c.text for c in again.choices], [c.text for c in alone.choices])
        self.assertEqual(len({c.text for c in alone.choices}), 3)

    def test_reloads_in_place_under_load_leave_whole_answers(self):
        def load(path):
            return self.server.post("/v1/load_lora_adapter", {
                "lora_name": "moving", "lora_path": path, "load_inplace": True})[0]

        def ask():
            return self.complete(model="moving", max_tokens=24).choices[0].text

        wanted = set()
        for path in ("experts", "up_only"):
            self.assertEqual(load(path), 200)
            wanted.add(ask())
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = []
            for path in ("experts", "up_only") * 4:
                answers += [pool.submit(ask) for _ in range(4)]
                self.assertEqual(load(path), 200)
            self.assertLessEqual({answer.result() for answer in answers}, wanted)
        self.assertEqual(self.server.post("/v1/unload_lora_adapter", {"lora_name": "moving"})[0], 200)

    @unittest.skipUnless(shutil.which("curl"), "no curl here")
    def test_curl_is_enough(self):
        body = {"model": "attention", "prompt": PROMPT, "temperature": 0, "max_tokens": 12}

        def curl(fields):
            return subprocess.run(
                ["curl", "--silent", "--no-buffer", self.server.url + "/v1/completions",
                 "--data", json.dumps(fields)], check=True, capture_output=True, text=True).stdout

        text = json.loads(curl(body))["choices"][0]["text"]
        self.assertEqual(text, self.complete(model="attention").choices[0].text)
        *events, last = curl(body | {"stream": True}).split("\n\n")[:-1]
        self.assertEqual(last, "data: [DONE]")
        pieces = [json.loads(event.removeprefix("data: "))["choices"] for event in events]
        self.assertEqual("".join(p[0]["text"] for p in pieces if p), text)

    def test_errors_are_the_clients_own(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.complete(model="nobody")
        self.assertEqual(caught.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.complete(temperature=-1)
        self.assertEqual(caught.exception.param, "temperature")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.complete(extra_body={"guided_regex": "(a"})
        self.assertEqual(caught.exception.param, "guided_regex")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.complete(prompt="long " * 1000)
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        self.assertEqual(caught.exception.type, "invalid_request_error")
        self.assertEqual(caught.exception.param, "prompt")

    def test_adapters_come_and_go(self):
        load = {"lora_name": "late", "lora_path": "experts"}
        self.assertEqual(self.server.post("/v1/load_lora_adapter", load)[0], 200)
        first = self.complete(model="late").choices[0].text
        self.assertEqual(self.server.post("/v1/load_lora_adapter", load)[0], 400)
        replaced = {"lora_name": "late", "lora_path": "down_only", "load_inplace": True}
        self.assertEqual(self.server.post("/v1/load_lora_adapter", replaced)[0], 200)
        self.assertNotEqual(self.complete(model="late").choices[0].text, first)
        unload = {"lora_name": "late"}
        self.assertEqual(self.server.post("/v1/unload_lora_adapter", unload)[0], 200)
        self.assertEqual(self.server.post("/v1/unload_lora_adapter", unload)[0], 404)
        with self.assertRaises(openai.NotFoundError):
            self.complete(model="late")
        refused = {"lora_name": "odd", "lora_path": "refused_a_without_b"}
        status, answer = self.server.post("/v1/load_lora_adapter", refused)
        self.assertEqual(status, 400)
        self.assertEqual(json.loads(answer)["error"]["param"], "lora_path")
        for path, status in (("../../tiny", 400), ("nowhere", 404)):
            body = {"lora_name": "odd", "lora_path": path}
            self.assertEqual(self.server.post("/v1/load_lora_adapter", body)[0], status)

    def test_a_stream_that_is_dropped_frees_its_sequence(self):
        stream = self.complete(max_tokens=50, stream=True)
        next(iter(stream))
        stream.close()
        names = ("motley_sequences_running", "motley_kv_pages_used")

        def left() -> list[float]:
            return [self.server.samples()[(name, ())] for name in names]

        until("the sequence to end", lambda: not any(left()), left)

    def test_metrics_parse_and_gateways_find_theirs(self):
        self.complete(model="attention")
        samples = self.server.samples()
        labels = [dict(key[1]) for key in samples if key[0] == "vllm:lora_requests_info"]
        self.assertEqual(len(labels), 1)
        self.assertEqual(set(labels[0]), {"model_name", "max_lora", "running_lora_adapters",
                                          "waiting_lora_adapters"})
        self.assertGreaterEqual(int(labels[0]["max_lora"]), 1)
        self.assertGreater(samples[("motley_generated_tokens_total", ())], 0)
        config = [dict(key[1]) for key in samples if key[0] == "vllm:cache_config_info"]
        self.assertEqual(set(config[0]), {"model_name", "block_size", "num_gpu_blocks"})
        self.assertEqual(samples[("motley_broken_invariants_total", ())], 0)


if __name__ == "__main__":
    unittest.main()
