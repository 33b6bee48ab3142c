"""`motley serve --dp 2` beside one engine: replicas_test.py MOTLEY GOLDEN"""

import json
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tiny_model
from server_process import SMALL, ServerProcess, until

MOTLEY, GOLDEN = Path(sys.argv.pop(1)), Path(sys.argv.pop(1))
ADAPTERS = ("attention", "all_linear", "experts")
CLIENTS = 8


class Server(ServerProcess):
    def complete(self, body: dict) -> list:
        status, text = self.post("/v1/completions", body)
        if status != 200:
            return [status, json.loads(text)["error"]["message"]]
        return [(choice["text"], choice["finish_reason"], choice["logprobs"]) for choice in json.loads(text)["choices"]]

    def complete_all(self, bodies: list[dict]) -> list:
        with ThreadPoolExecutor(CLIENTS) as pool:
            return list(pool.map(self.complete, bodies))

    def metric(self, name: str) -> dict[str, float]:
        """Its values by labels."""
        return {name_and_labels.removeprefix(name): value for name_and_labels, value in self.metrics().items()
                if name_and_labels == name or name_and_labels.startswith(name + "{")}

    def metric_once(self, name: str, holds) -> dict[str, float]:
        """The same once it holds: an engine counts a request after its last answer's words."""
        return until(name, lambda: values if holds(values := self.metric(name)) else None, lambda: self.metric(name))


def bodies() -> list[dict]:
    """Requests with one right answer each: greedy and by chance, of the base and of adapters, alone and mixed."""
    made = []
    for i in range(36):
        body = {"model": "tiny", "prompt": "the rain in spain stays " * (1 + i % 3) + str(i), "max_tokens": 4 + i % 5,
                "logprobs": 2, "temperature": 0}
        if i % 3 == 1:
            body["model"] = ADAPTERS[i % len(ADAPTERS)]
        elif i % 3 == 2:
            body["adapters"] = [{"name": name, "scale": 0.5} for name in ADAPTERS[:2]]
        if i % 4 == 3:
            body |= {"temperature": 1, "seed": i, "n": 2}
        made.append(body)
    return made


class Replicas(tiny_model.Case):
    golden = GOLDEN

    def start(self, *options: str, adapters=ADAPTERS) -> Server:
        named = [word for name in adapters for word in ("--adapter", f"{name}={self.folder}/adapters/{name}")]
        server = Server(MOTLEY, self.folder, *SMALL, *named, "--allow-adapter-loading",
                        "--adapter-root", f"{self.folder}/adapters", *options)
        self.addCleanup(server.close)
        return server

    def end(self, server: Server) -> None:
        self.assertEqual(server.end(), 0, server.lines())

    def test_answers_are_those_of_one_engine_to_the_bit(self):
        asked = bodies()
        one = self.start()
        wanted = one.complete_all(asked)
        self.assertEqual(one.metric("motley_replica_up"), {})
        self.assertEqual(list(one.metric("motley_requests_total")), [""])
        self.end(one)
        two = self.start("--dp", "2")
        for _ in range(2):  # prompts are cached the second time
            self.assertEqual(two.complete_all(asked), wanted)
        requests = two.metric_once("motley_requests_total", lambda counts: sum(counts.values()) == 2 * len(asked))
        self.assertEqual(list(requests), ['{replica="0"}', '{replica="1"}'])
        # The first request and one of an adapter go to two replicas whatever else runs.
        self.assertGreater(min(requests.values()), 0)
        self.assertEqual(sum(requests.values()), 2 * len(asked))
        self.assertEqual(two.metric("motley_replica_up"), {'{replica="0"}': 1, '{replica="1"}': 1})
        running = two.metric_once("vllm:num_requests_running", lambda counts: list(counts.values()) == [0])
        self.assertEqual(list(running), ['{model_name="tiny"}'])
        self.assertEqual(json.loads(two.get("/health")), {"status": "ready"})
        self.assertIn("engine.replica replica=1", two.lines())
        self.end(two)

    def test_adapters_come_and_go_in_all(self):
        server = self.start("--dp", "2", adapters=ADAPTERS[:1])
        adapters = '{replica="0"}', '{replica="1"}'
        body = {"model": "late", "prompt": "the rain", "max_tokens": 3, "temperature": 0}
        self.assertEqual(server.complete(body)[0], 404)
        self.assertEqual(server.post("/v1/load_lora_adapter", {"lora_name": "late", "lora_path": "none"})[0], 404)
        load = {"lora_name": "late", "lora_path": "experts"}
        self.assertEqual(server.post("/v1/load_lora_adapter", load)[0], 200)
        server.metric_once("motley_adapters", lambda counts: counts == dict.fromkeys(adapters, 2))
        self.assertEqual(server.post("/v1/load_lora_adapter", load)[0], 400)
        answers = server.complete_all([body] * 16)
        self.assertEqual(answers, answers[:1] * 16)
        other = load | {"lora_path": "all_linear", "load_inplace": True}
        self.assertEqual(server.post("/v1/load_lora_adapter", other)[0], 200)
        replaced = server.complete_all([body] * 16)
        self.assertEqual(replaced, replaced[:1] * 16)
        self.assertNotEqual(replaced[0], answers[0])
        self.assertEqual(server.post("/v1/unload_lora_adapter", {"lora_name": "late"})[0], 200)
        server.metric_once("motley_adapters", lambda counts: counts == dict.fromkeys(adapters, 1))
        self.assertEqual(server.complete(body)[0], 404)
        self.end(server)

    def test_it_drains_all_of_them(self):
        server = self.start("--dp", "2", "--drain-timeout", "300")
        with ThreadPoolExecutor(CLIENTS) as pool:
            body = {"model": "tiny", "prompt": "on", "max_tokens": 100, "temperature": 0, "ignore_eos": True}
            answers = [pool.submit(server.complete, body) for _ in range(CLIENTS)]
            server.metric_once("motley_requests_total", lambda counts: sum(counts.values()) == CLIENTS)
            self.end(server)
            for answer in answers:
                self.assertEqual(answer.result()[0][1], "length")
        self.assertNotIn("serve.cutting_off", server.lines())

    def test_tensor_parallel_replicas_serve(self):
        server = self.start("--dp", "2", "--tp", "2", adapters=ADAPTERS[:1])
        body = {"model": "attention", "prompt": "the rain", "max_tokens": 3, "temperature": 0, "logprobs": 2}
        answers = server.complete_all([body] * 8)
        self.assertEqual(answers, answers[:1] * 8)
        free = server.metric("motley_rank_adapter_memory_pages_free")
        pages = server.metric("motley_rank_adapter_memory_pages")
        self.assertEqual(sorted(pages), sorted(f'{{rank="{rank}",replica="{replica}"}}' for rank in (0, 1) for replica in (0, 1)))
        for labels, number in pages.items():
            self.assertLess(free[labels], number, "every rank has a part of the adapter")
        self.end(server)


if __name__ == "__main__":
    unittest.main()
