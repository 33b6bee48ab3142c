"""lm-evaluation-harness: its log-likelihoods are those of `motley score`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import harness
from harness import KEY, ClientTest, main
from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model

TEXTS = [("<|user|>money<|end|><|assistant|>", "money (noun): the act of paying"),
         ("<|user|>wisdom<|end|><|assistant|>", "wisdom, n. A kind of mind"),
         ("<|user|>rain<|end|><|assistant|>", "rain (noun): water that falls"),
         ("<|user|>rain<|end|><|assistant|>", "In the beginning God created the heaven")]
TASK = """task: rain
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
output_type: multiple_choice
test_split: test
doc_to_text: "<|user|>{{word}}<|end|><|assistant|>"
doc_to_choice: "{{choices}}"
doc_to_target: 0
target_delimiter: ""
metric_list: [{metric: acc}]
"""


class LmEval(ClientTest):
    def setUp(self):
        os.environ["OPENAI_API_KEY"] = KEY

    def model(self, backend, name="demo", **fields):
        return get_model("local-completions")(
            model=name, base_url=self.v1 + "/completions", tokenizer_backend=backend,
            **{"tokenizer": str(self.server.model), "auth_token": KEY, "num_concurrent": 1, "batch_size": 2} | fields)

    def scored(self, adapter) -> list[tuple[float, int]]:
        """What `motley score` makes of the same tokens: of each continuation its sum and its length."""
        ids = [[self.server.post("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]
                for text in (context, context + rest)] for context, rest in TEXTS]
        given, found = self.scratch / "in.jsonl", self.scratch / "out.jsonl"
        given.write_text("".join(json.dumps({"token_ids": whole, "adapter": adapter}) + "\n" for _, whole in ids))
        subprocess.run([harness.MOTLEY, "score", self.server.model, *self.server.adapters, "--compute", "f32",
                        "--device", "cpu", "--input", given, "--output", found], check=True, capture_output=True)
        lines = [json.loads(line)["token_logprobs"] for line in found.read_text().splitlines()]
        return [(sum(line[len(context):]), len(line) - len(context))
                for line, (context, _) in zip(lines, ids, strict=True)]

    def loglikelihoods(self, model):
        requests = [Instance("loglikelihood", {}, text, index) for index, text in enumerate(TEXTS)]
        return [likelihood for likelihood, _ in model.loglikelihood(requests, disable_tqdm=True)]

    def assert_scored(self, found, adapter=None):
        for one, (other, tokens) in zip(found, self.scored(adapter), strict=True):
            self.assertAlmostEqual(one, other, delta=5e-7 * tokens)

    def test_log_likelihoods_are_those_of_score(self):
        for backend in ("auto", "remote", "huggingface"):
            with self.subTest(backend=backend):
                self.assert_scored(self.loglikelihoods(self.model(backend)))

    def test_log_likelihoods_of_an_adapter(self):
        self.assert_scored(self.loglikelihoods(self.model("huggingface", "cynic")), "cynic")

    def test_requests_at_once(self):
        alone = self.loglikelihoods(self.model("huggingface"))
        self.assertEqual(self.loglikelihoods(self.model("huggingface", num_concurrent=4)), alone)

    def test_the_tokenizer_is_found_by_itself(self):
        self.assertEqual(self.model("auto").tokenizer_backend, "remote")

    def test_generation(self):
        requests = [Instance("generate_until", {}, (context, {"until": ["\\n"], "max_gen_toks": 16, "temperature": 0}),
                             index) for index, (context, _) in enumerate(TEXTS[:2])]
        answers = self.model("huggingface").generate_until(requests, disable_tqdm=True)
        for (context, _), answer in zip(TEXTS, answers):
            whole = self.server.post("/v1/completions", {"model": "demo", "prompt": context, "temperature": 0,
                                                         "max_tokens": 16, "stop": ["\\n"]})
            self.assertEqual(answer, whole["choices"][0]["text"])

    def test_the_page(self):
        (self.scratch / "data.jsonl").write_text("".join(json.dumps(
            {"word": word, "choices": [f"{word} (noun): a thing", "And the sons of"]}) + "\n" for word in ("rain", "money")))
        tasks = self.scratch / "tasks"
        tasks.mkdir()
        (tasks / "rain.yaml").write_text(TASK.replace("DATA", str(self.scratch / "data.jsonl")))
        command = self.blocks("lm-evaluation-harness", "sh")[0]
        done = subprocess.run(["bash", "-ec", command], cwd=self.scratch, capture_output=True, text=True,
                              env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"})
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        result, = (self.scratch / "results").rglob("results_*.json")
        found = json.loads(result.read_text())["results"]["rain"]
        self.assertEqual(found["acc,none"], 1.0)


if __name__ == "__main__":
    main()
