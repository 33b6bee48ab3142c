"""What `motley serve` does between a trainer's steps: trainers_test.py MOTLEY MODEL

MODEL is models/demo. The calls are those of TRL 1.16.0 (pause?mode=keep, load, resume), SkyRL 0.4.0 (a load in place,
a reset with a JSON body) and prime-rl (the base's name).
"""

import ast
import base64
import json
import signal
import sys
import tempfile
import threading
import unittest
from pathlib import Path

from server_process import ServerProcess, until

MOTLEY, MODEL = Path(sys.argv.pop(1)), Path(sys.argv.pop(1)).resolve()
ADAPTERS = MODEL / "adapters"
SMALL = ("--device", "cpu", "--kv-memory", "16M", "--adapter-memory", "32M", "--no-adapter-check")
PROMPTS = ("wisdom", "the rain in", "once upon a time", "a king", "and it came to pass", "bread")


class Asker(threading.Thread):
    """A completion on a thread of its own."""

    def __init__(self, server: ServerProcess, body: dict):
        super().__init__()
        self.server, self.body, self.answer = server, body, {}
        self.start()

    def run(self):
        status, text = self.server.post("/v1/completions", self.body)
        self.answer = {"status": status} | json.loads(text)

    def result(self) -> dict:
        self.join()
        return self.answer


class Trainers(unittest.TestCase):
    def start(self, *options) -> ServerProcess:
        server = ServerProcess(MOTLEY, MODEL, *SMALL, *options)
        self.addCleanup(server.close)
        return server

    def post(self, server: ServerProcess, path: str, body="", **more) -> dict:
        status, text, _ = server.ask(path, body, **more)
        self.assertEqual(status, 200, text)
        return json.loads(text)

    def bodies(self, model: str) -> list[dict]:
        fields = {"max_tokens": 24, "temperature": 1, "ignore_eos": True, "logprobs": 0}
        return [{"model": model, "prompt": prompt, "seed": at, "n": 1 + at % 2} | fields
                for at, prompt in enumerate(PROMPTS)]

    @staticmethod
    def sequences(server: ServerProcess) -> float:
        page = server.metrics()
        return sum(value for name, value in page.items()
                   if name.split("{")[0] in ("motley_sequences_running", "motley_sequences_waiting"))

    def test_kept_answers_are_those_of_a_server_that_never_paused(self):
        """Under --dp 2, with a load while the server is paused, and another pause in the middle."""
        server = self.start("--adapter", f"policy={ADAPTERS / 'cynic'}", "--allow-adapter-loading", "--dp", "2")
        bodies = self.bodies("policy") + self.bodies("demo")
        choices = [self.post(server, "/v1/completions", body)["choices"] for body in bodies]
        self.assertEqual(self.post(server, "/reset_prefix_cache", {"reset_running_requests": True}), {"success": True})

        self.assertEqual(self.post(server, "/pause?mode=keep"), {"status": "paused"})
        asked = [Asker(server, body) for body in bodies]
        until("all to wait", lambda: self.sequences(server) >= len(bodies), lambda: str(self.sequences(server)))
        self.assertEqual(self.post(server, "/resume"), {"status": "resumed"})
        self.post(server, "/pause", {"mode": "keep"})
        self.assertTrue(json.loads(server.get("/is_paused"))["is_paused"])
        loaded = self.post(server, "/skyrl/v1/load_lora_adapter",
                           {"lora_name": "policy", "lora_path": str(ADAPTERS / "cynic")})
        self.assertEqual((loaded["status"], loaded["success"]), ("ok", True))
        self.post(server, "/resume")
        for each, expected in zip(asked, choices):
            self.assertEqual(each.result()["choices"], expected)
        self.assertEqual(server.end(), 0)

    def test_an_aborted_answer_is_the_beginning_of_the_whole_one(self):
        server = self.start("--allow-adapter-loading")
        body = {"model": "demo", "prompt": "wisdom", "max_tokens": 200, "temperature": 0, "ignore_eos": True}
        whole = self.post(server, "/v1/completions", body)["choices"][0]["text"]
        asked = Asker(server, body | {"request_id": "rollout-1"})
        until("it to run", lambda: server.metrics()["motley_sequences_running"] == 1)
        self.post(server, "/pause")
        choice = asked.result()["choices"][0]
        # It may have been at its end already.
        self.assertIn(choice["finish_reason"], ("abort", "length"))
        self.assertTrue(whole.startswith(choice["text"].rstrip("\ufffd")))
        self.assertEqual(server.metrics()["motley_kv_pages_cached"], 0)
        status, _, headers = server.ask("/v1/completions", body)
        self.assertEqual((status, headers.get("Retry-After")), (503, "1"))
        self.post(server, "/resume")
        self.assertEqual(self.post(server, "/v1/completions", body)["choices"][0]["text"], whole)

    def test_a_paused_server_drains(self):
        server = self.start("--adapter", f"policy={ADAPTERS / 'cynic'}", "--allow-adapter-loading", "--drain-timeout", "300")
        self.post(server, "/pause?mode=keep")
        self.post(server, "/pause?mode=keep&lora_name=policy")
        asked = [Asker(server, body) for body in self.bodies("policy")[:2] + self.bodies("demo")[:2]]
        until("all to wait", lambda: self.sequences(server) >= len(asked), lambda: str(self.sequences(server)))
        self.assertEqual(server.end(signal.SIGTERM), 0)
        for each in asked:
            self.assertEqual(each.result()["status"], 200)
        self.assertNotIn("serve.cutting_off", server.lines())

    def test_admin_keys_alone_change_the_server(self):
        with tempfile.TemporaryDirectory() as folder:
            keys, admin = Path(folder, "keys"), Path(folder, "admin")
            keys.write_text("user\n")
            admin.write_text("# for the trainer\nroot\n")
            server = self.start("--api-key-file", str(keys), "--admin-key-file", str(admin), "--default-adapter", "pushed")
            user, root = ({"Authorization": f"Bearer {key}"} for key in ("user", "root"))
            load = {"lora_name": "demo", "lora_path": str(ADAPTERS / "cynic")}
            ask = {"model": "demo", "prompt": "wisdom", "max_tokens": 8, "temperature": 0}
            self.assertEqual(server.ask("/load_lora_adapter", load, headers=user)[0], 403)
            bare = self.post(server, "/v1/completions", ask, headers=user)
            self.post(server, "/load_lora_adapter", load, headers=root)
            pushed = self.post(server, "/v1/completions", ask, headers=user)
            self.assertEqual(pushed["model"], "demo")
            self.assertIn("adapter_version", pushed)
            again = self.post(server, "/v1/completions", ask | {"adapters": []}, headers=user)
            self.assertEqual(again["choices"], bare["choices"])
            info = json.loads(server.ask("/server_info?config_format=json", headers=user)[1])
            self.assertEqual(info["motley"]["arithmetic"]["compute"], info["vllm_config"]["model_config"]["dtype"][6:])
            admin.write_text("next\n")
            server.process.send_signal(signal.SIGHUP)
            server.wait_for_line("serve.keys_read")
            self.assertEqual(server.ask("/resume", "", headers=root)[0], 401)
            self.post(server, "/resume", headers={"X-Api-Key": "next"})

    def experts(self, choice: dict) -> tuple[str, tuple[int, ...], bytes]:
        """Type, sizes and numbers of the .npy file."""
        data = base64.b64decode(choice["routed_experts"], validate=True)
        self.assertEqual(data[:8], b"\x93NUMPY\x01\x00")
        end = 10 + int.from_bytes(data[8:10], "little")
        head = ast.literal_eval(data[10:end].decode())
        self.assertFalse(head["fortran_order"])
        return head["descr"], head["shape"], data[end:]

    def test_answers_have_the_experts_of_their_tokens(self):
        config = json.loads((MODEL / "config.json").read_text())
        layers, width = config["num_hidden_layers"], config["num_experts_per_tok"]
        server = self.start("--enable-return-routed-experts", "--max-batch-tokens", "64")
        body = {"prompt": "once upon a time there was", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
        answer = self.post(server, "/v1/completions", body | {"n": 2})
        tokens = answer["usage"]["prompt_tokens"] + 12
        descr, shape, whole = self.experts(answer["choices"][0])
        self.assertEqual((descr, shape), ("|u1", (tokens - 1, layers, width)))
        self.assertEqual(len(whole), (tokens - 1) * layers * width)
        for at in range(0, len(whole), width):
            self.assertEqual(len(set(whole[at : at + width])), width, "different experts of a token")
        self.assertEqual(self.experts(answer["choices"][1]), (descr, shape, whole))
        later = self.post(server, "/v1/completions", body | {"routed_experts_prompt_start": 3})["choices"][0]
        self.assertEqual(self.experts(later), (descr, (tokens - 4, layers, width), whole[3 * layers * width :]))
        adapted = self.post(server, "/v1/completions", body | {"return_routed_experts": False})
        self.assertNotIn("routed_experts", adapted["choices"][0])
        plain = self.start()
        status, text, _ = plain.ask("/v1/completions", body | {"return_routed_experts": True})
        self.assertEqual(status, 400)
        self.assertIn("--enable-return-routed-experts", text)

    def test_a_bad_file_of_admin_keys_ends_the_start(self):
        with tempfile.NamedTemporaryFile("w") as empty:
            with self.assertRaisesRegex(RuntimeError, "a file of keys that holds none"):
                self.start("--admin-key-file", empty.name)


if __name__ == "__main__":
    unittest.main()
