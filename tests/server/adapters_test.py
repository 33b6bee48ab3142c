"""What `motley serve` says and does about its adapters: adapters_test.py MOTLEY MODEL

MODEL is models/demo, whose folder `adapters` holds adapters.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from server_process import ServerProcess, until

MOTLEY, MODEL = Path(sys.argv.pop(1)), Path(sys.argv.pop(1)).resolve()
ADAPTERS = MODEL / "adapters"
SMALL = ("--device", "cpu", "--kv-memory", "16M", "--adapter-memory", "32M")


class Case(unittest.TestCase):
    def setUp(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.folder = Path(kept.name)

    def start(self, *options, **more) -> ServerProcess:
        server = ServerProcess(MOTLEY, MODEL, *SMALL, *options, **more)
        self.addCleanup(server.close)
        return server

    def copy(self, name: str, to: str) -> Path:
        return Path(shutil.copytree(ADAPTERS / name, self.folder / to))

    def complete(self, server: ServerProcess, model: str, **more) -> tuple[int, dict]:
        status, text = server.post("/v1/completions", {"model": model, "prompt": "wisdom", "max_tokens": 3, "temperature": 0, "ignore_eos": True} | more)
        return status, json.loads(text)


def samples(server: ServerProcess) -> dict:
    """By name, the samples as (labels, value); read by Prometheus' own parser."""
    found: dict = {}
    for family in text_string_to_metric_families(server.get("/metrics")):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


class Metrics(Case):
    def test_routers_see_where_adapters_are_and_nothing_of_those_that_are_gone(self):
        server = self.start("--adapter", f"cynic={ADAPTERS / 'cynic'},pinned", "--allow-adapter-loading",
                            "--no-adapter-check")
        page = samples(server)
        base = {"model_name": "demo"}
        self.assertEqual(page["vllm:num_gpu_loaded_lora_adapters"], [(base, 1)])
        self.assertEqual(page["vllm:num_cpu_loaded_lora_adapters"], [(base, 0)])
        self.assertGreaterEqual(page["vllm:max_gpu_lora_adapters"][0][1], 1)
        self.assertEqual(page["vllm:lora_adapter_load_seconds_count"][0][0], base)
        labels = page["vllm:lora_adapter_loaded"]
        self.assertEqual(len(labels), 1)
        self.assertEqual({**labels[0][0], "rank": ""},
                         base | {"adapter_name": "cynic", "level": "gpu", "pinned": "true", "rank": ""})
        self.assertGreater(int(labels[0][0]["rank"]), 0)

        load = {"lora_name": "team@3:poet", "lora_path": str(ADAPTERS / "scripture"), "is_3d_lora_weight": False}
        self.assertEqual(server.post("/v1/load_lora_adapter", load)[0], 200)
        status, text = server.post("/v1/load_lora_adapter", load)
        self.assertEqual(status, 400)
        flat = json.loads(text)
        self.assertEqual(flat["type"], "InvalidUserInput")
        for words in (flat["message"], flat["error"]["message"]):
            self.assertIn("has already been loaded", words)
        self.assertEqual(self.complete(server, "team@3:poet")[0], 200)
        self.assertEqual(self.complete(server, "demo:team@3:poet")[0], 200)
        self.assertEqual(self.complete(server, "demo")[0], 200)
        self.assertEqual(server.post("/v1/load_lora_adapter", load | {"load_inplace": True})[0], 200)

        def tokens() -> dict:
            return {labels["adapter"]: value for labels, value in samples(server)["motley_adapter_generated_tokens_total"]}

        wanted = {"": 3, "team@3:poet": 6, "(others)": 0}
        until("tokens by adapter", lambda: tokens() == wanted, lambda: str(tokens()))
        page = samples(server)
        self.assertEqual(page["motley_adapter_time_to_first_token_seconds_count"][1][1], 2)
        self.assertEqual(page["motley_adapter_replacements_total"], [({}, 1)])
        ends = {labels["finished_reason"]: value for labels, value in page["vllm:request_success_total"]}
        self.assertEqual(sum(ends.values()), 3)
        for name in ("vllm:time_to_first_token_seconds", "vllm:e2e_request_latency_seconds",
                     "vllm:request_prefill_time_seconds", "vllm:request_generation_tokens"):
            self.assertEqual(page[name + "_count"], [(base, 3)], name)

        # As AIBrix's controller asks for it.
        unload = {"lora_name": "team@3:poet", "lora_int_id": None}
        self.assertEqual(server.post("/v1/unload_lora_adapter", unload)[0], 200)
        self.assertNotIn("poet", server.get("/metrics"))
        server.wait_for_line("adapter.unloaded")
        events = re.findall(r"adapter\.(\w+) adapter=(\S+) path=(\S+) version=([0-9a-f]{32})", server.lines())
        self.assertEqual([event[:2] for event in events],
                         [("loaded", "cynic"), ("loaded", "team@3:poet"), ("replaced", "team@3:poet"),
                          ("unloaded", "team@3:poet")])

    def test_cards_say_what_an_adapter_is(self):
        server = self.start("--adapter", f"poet={ADAPTERS / 'scripture'}", "--no-adapter-check")
        cards = json.loads(server.get("/v1/models"))["data"]
        card = next(each for each in cards if each["id"] == "poet")
        self.assertEqual((card["parent"], card["root"], card["state"], card["level"]),
                         ("demo", "scripture", "ready", "gpu"))
        self.assertEqual(card["max_model_len"], cards[0]["max_model_len"])
        self.assertGreater(card["rank"], 0)
        self.assertGreater(card["bytes"], 0)
        self.assertRegex(card["version"], "^[0-9a-f]{32}$")
        self.assertTrue(card["modules"])


class Logs(Case):
    def test_json_is_all_that_is_written(self):
        bad = self.copy("jargon", "bad")
        (bad / "adapter_model.safetensors").write_bytes(b"")
        server = self.start("--log-format", "json", "--allow-adapter-loading", "--adapter", f"cynic={ADAPTERS / 'cynic'}")

        def events() -> list[dict]:
            return [json.loads(line) for line in server.lines().splitlines(True) if line.endswith("\n")]

        def named(name: str) -> list[dict]:
            return [event for event in events() if event["event"] == name]

        ready = named("serve.listening")[0]
        self.assertEqual((ready["model"], ready["port"]), ("demo", server.port))
        self.assertEqual(self.complete(server, "cynic")[0], 200)
        status, text, _ = server.ask("/v1/completions", {"model": "cynic", "prompt": "x", "temperature": -1},
                                     headers={"X-Request-Id": "run-7"})
        self.assertEqual((status, json.loads(text)["error"]["param"]), (400, "temperature"))
        self.assertEqual(server.post("/v1/load_lora_adapter", {"lora_name": "bad", "lora_path": str(bad)})[0], 400)
        requests = until("three requests in the log",
                         lambda: named("http.request") if len(named("http.request")) >= 3 else None, server.lines)
        # Of several connections, in any order.
        by_status = {(event["path"], event["status"]): event for event in requests}
        whole = by_status["/v1/completions", 200]
        refused = by_status["/v1/completions", 400]
        load = by_status["/v1/load_lora_adapter", 400]
        self.assertEqual((whole["model"], whole["completion_tokens"], whole["end"]), ("cynic", 3, "length"))
        self.assertGreater(whole["prompt_tokens"], 0)
        self.assertLessEqual(whole["first_token_ms"], whole["ms"])
        self.assertEqual((refused["id"], refused["status"], refused["error"]), ("run-7", 400, "invalid_argument"))
        self.assertIn("temperature", refused["message"])
        self.assertEqual(load["status"], 400)
        failed = named("adapter.failed")
        self.assertEqual([each["adapter"] for each in failed], ["bad"])
        self.assertEqual(named("adapter.loaded")[0]["adapter"], "cynic")
        self.assertEqual(server.end(), 0)
        self.assertEqual(server.process.stdout.read(), "")
        events()  # every line is an object

    def test_an_error_that_ends_the_program_is_json_too(self):
        for more, status, words in (([], 1, "no such folder"), (["--no-such-option"], 2, "unknown option")):
            ended = subprocess.run([MOTLEY, "serve", self.folder / "none", *more, "--log-format", "json"],
                                   capture_output=True, text=True, timeout=60)
            self.assertEqual((ended.returncode, ended.stdout), (status, ""))
            last = json.loads(ended.stderr.splitlines()[-1])
            self.assertEqual(last["event"], "program.failed")
            self.assertIn(words, last["message"])

    def test_no_text_of_a_prompt_is_in_the_log(self):
        server = self.start()
        for path, body in (("/v1/completions", '{"prompt": "a" "the secret plan"}'),
                           ("/v1/completions", '{"prompt": ["the secret plan", 3]}'),
                           ("/v1/completions", '{"prompt": "x", "the secret plan": 1, "temperature": "the secret plan"}'),
                           ("/v1/chat/completions", '{"messages": [{"role": 3, "content": "the secret plan"}]}'),
                           ("/v1/chat/completions", '{"messages": "the secret plan"}')):
            self.assertEqual(server.ask(path, body)[0] // 100, 4, body)
        until("the answers in the log", lambda: server.lines().count("http.request") == 5, server.lines)
        self.assertNotIn("secret", server.lines())


class Folders(Case):
    def test_a_folder_is_served_by_the_names_in_it(self):
        self.copy("cynic", "cynic")
        self.copy("jargon", ".hidden")
        half = self.copy("record", "half")
        (half / "adapter_model.safetensors").unlink()
        other = self.copy("fortune", "other")
        config = json.loads((other / "adapter_config.json").read_text())
        (other / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": "acme/other"}))
        (self.folder / "out").symlink_to(ADAPTERS / "scripture")
        (self.folder / "notes").mkdir()
        server = self.start("--adapter-dir", str(self.folder))
        ids = [each["id"] for each in json.loads(server.get("/v1/models"))["data"]]
        self.assertEqual(ids, ["demo", "cynic"])
        server.wait_for_line("serve.listening")  # the log is written by a thread of its own
        left_out = set(re.findall(r"adapter\.left_out adapter=(\S+)", server.lines()))
        self.assertEqual(left_out, {"half", "other", "out"})

        for name in ("half", "other", "out"):
            status, answer = self.complete(server, name)
            self.assertEqual((status, answer["error"]["param"]), (400, "model"), name)
            self.assertNotIn(str(self.folder), answer["error"]["message"])
        for name in (".hidden", "notes", "none", "../cynic"):
            self.assertEqual(self.complete(server, name)[0], 404, name)
        # Found on request; a name that was not there before, too.
        self.copy("jargon", "none")
        plain = self.complete(server, "demo", max_tokens=24)[1]["choices"][0]["text"]
        status, answer = self.complete(server, "none", max_tokens=24)
        self.assertEqual(status, 200, answer)
        self.assertNotEqual(answer["choices"][0]["text"], plain)
        self.assertEqual(json.loads(server.get("/v1/models/none"))["root"], "none")

        # The same after a restart, and adapters of other bases where the command line says so.
        again = self.start("--adapter-dir", str(self.folder), "--any-base")
        ids = [each["id"] for each in json.loads(again.get("/v1/models"))["data"]]
        self.assertEqual(ids, ["demo", "cynic", "none", "other"])

    def test_many_requests_for_a_new_name_load_it_once(self):
        server = self.start("--adapter-dir", str(self.folder))
        self.copy("cynic", "late")
        asked = [subprocess.Popen([sys.executable, "-c", f"""
import json, urllib.request
body = json.dumps({{"model": "late", "prompt": "wisdom", "max_tokens": 1}}).encode()
print(urllib.request.urlopen(urllib.request.Request("{server.url}/v1/completions", body), timeout=60).status)
"""], stdout=subprocess.PIPE, text=True) for _ in range(6)]
        self.assertEqual([each.communicate(timeout=60)[0].strip() for each in asked], ["200"] * 6)
        until("six requests in the log", lambda: server.lines().count("http.request") == 6, server.lines)
        self.assertEqual(server.lines().count("adapter.loaded adapter=late"), 1)


    def test_an_adapter_that_was_unloaded_comes_back_with_the_next_request_until_its_folder_is_gone(self):
        folder = self.copy("cynic", "poet")
        server = self.start("--adapter-dir", str(self.folder), "--allow-adapter-loading", "--no-adapter-check")

        def ids() -> list[str]:
            return [each["id"] for each in json.loads(server.get("/v1/models"))["data"]]

        def unload() -> None:
            self.assertEqual(server.post("/v1/unload_lora_adapter", {"lora_name": "poet"})[0], 200)
            self.assertEqual(ids(), ["demo"])

        status, before = self.complete(server, "poet", max_tokens=24)
        self.assertEqual(status, 200, before)
        unload()
        status, again = self.complete(server, "poet", max_tokens=24)
        self.assertEqual(status, 200, again)
        self.assertEqual(again["choices"][0]["text"], before["choices"][0]["text"])
        self.assertEqual(ids(), ["demo", "poet"])
        until("both loads in the log", lambda: server.lines().count("adapter.loaded adapter=poet") == 2, server.lines)

        shutil.rmtree(folder)
        unload()
        self.assertEqual(self.complete(server, "poet")[0], 404)


class Checks(Case):
    def untrained(self) -> Path:
        folder = self.copy("cynic", "untrained")
        file = folder / "adapter_model.safetensors"
        content = bytearray(file.read_bytes())
        begin = 8 + int.from_bytes(content[:8], "little")
        tensors = {name: entry for name, entry in json.loads(content[8:begin]).items() if "lora_B" in name}
        self.assertTrue(tensors)
        for entry in tensors.values():
            first, last = (begin + offset for offset in entry["data_offsets"])
            content[first:last] = bytes(last - first)
        file.write_bytes(content)
        return folder

    def test_an_adapter_that_changes_nothing_is_warned_of(self):
        server = self.start("--adapter", f"untrained={self.untrained()}", "--adapter", f"cynic={ADAPTERS / 'cynic'}",
                            "--log-level", "debug")
        line = server.wait_for_line("adapter.changes_nothing")
        self.assertIn("adapter=untrained", line)
        self.assertIn("proj", line)
        server.wait_for_line("adapter.checked adapter=cynic")
        self.assertEqual(server.lines().count("adapter.changes_nothing"), 1)
        # It is in no count of requests.
        page = samples(server)
        self.assertEqual(page["motley_requests_total"], [({}, 0)])
        self.assertEqual(page["vllm:prompt_tokens_total"][0][1], 0)

    def test_inspect_says_so_too(self):
        def inspect(folder: Path, *options: str) -> str:
            return subprocess.run([MOTLEY, "inspect", folder, "--model", MODEL, *options], capture_output=True,
                                  text=True, timeout=60, check=True).stdout
        self.assertRegex(inspect(self.untrained()), r"effect: none")
        self.assertRegex(inspect(ADAPTERS / "cynic"), r"effect: log-probabilities")
        self.assertNotIn("effect", inspect(ADAPTERS / "cynic", "--no-adapter-check"))


class LogProbabilities(Case):
    def test_prompts_have_as_many_alternatives_as_the_option_allows(self):
        server = self.start("--max-logprobs", "-1", "--no-adapter-check")
        body = {"model": "demo", "prompt": "wisdom is the principal thing", "max_tokens": 1, "prompt_logprobs": 100}
        status, text = server.post("/v1/completions", body)
        self.assertEqual(status, 200, text)
        entries = json.loads(text)["choices"][0]["prompt_logprobs"]
        self.assertIsNone(entries[0])
        for entry in entries[1:]:
            ranks = [each["rank"] for each in entry.values()]
            self.assertEqual(sorted(ranks)[:100], list(range(1, 101)))
            self.assertIn(len(entry), (100, 101))
        self.assertEqual(server.post("/v1/completions", body | {"prompt_logprobs": 1025})[0], 400)
        fewer = self.start("--max-logprobs", "3", "--no-adapter-check")
        self.assertEqual(fewer.post("/v1/completions", body)[0], 400)
        self.assertEqual(fewer.post("/v1/completions", body | {"prompt_logprobs": 3, "logprobs": 4})[0], 400)

    def test_processed_ones_are_of_the_distribution_that_is_drawn_from(self):
        body = {"model": "demo", "prompt": "wisdom is", "max_tokens": 8, "logprobs": 2, "ignore_eos": True, "seed": 1}

        def logprobs(server: ServerProcess, **more) -> list[float]:
            status, text = server.post("/v1/completions", body | more)
            self.assertEqual(status, 200, text)
            return json.loads(text)["choices"][0]["logprobs"]["token_logprobs"]

        raw = self.start("--no-adapter-check")
        processed = self.start("--no-adapter-check", "--logprobs-mode", "processed_logprobs")
        # One token is left, so it is certain; the model's own distribution has others.
        self.assertEqual(logprobs(processed, top_k=1), [0.0] * 8)
        self.assertLess(min(logprobs(raw, top_k=1)), -0.1)
        # At temperature 1 without cuts both are the same.
        plain = {"temperature": 1, "top_k": -1, "top_p": 1, "min_p": 0, "repetition_penalty": 1}
        for one, other in zip(logprobs(raw, **plain), logprobs(processed, **plain), strict=True):
            self.assertAlmostEqual(one, other, delta=2e-5)


class Probes(Case):
    def test_a_server_that_serves_lives_and_is_ready(self):
        server = self.start()
        for path in ("/livez", "/liveness", "/readyz", "/health"):
            self.assertEqual(server.ask(path)[0], 200, path)


if __name__ == "__main__":
    unittest.main()
