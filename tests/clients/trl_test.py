"""TRL: the client of its AsyncGRPO, which syncs adapters by path, and that of GRPO and of distillation."""

import os
import shutil
import warnings
from unittest import mock

import torch
from harness import POSITIONS, ClientTest, main

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
warnings.filterwarnings("ignore", category=FutureWarning)

import requests  # noqa: E402
from accelerate import PartialState  # noqa: E402
from peft import LoraConfig, get_peft_model  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402
from trl.experimental.async_grpo import AsyncGRPOConfig  # noqa: E402
from trl.experimental.async_grpo.async_grpo_trainer import select_adapter_sync  # noqa: E402
from trl.experimental.async_grpo.vllm_client import VLLMClient  # noqa: E402
from trl.generation.vllm_client import VLLMClient as GrpoClient  # noqa: E402

PartialState(cpu=True)  # its logger asks for one

# As its command line has it: trl vllm-serve and the documented line of AsyncGRPO.
OPTIONS = ("--allow-adapter-loading", "--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1",
           "--enable-lora", "--max-lora-rank", "32", "--max-loras", "5")


class Trl(ClientTest):
    options = OPTIONS
    key = None  # its clients send none

    def policy(self, rank: int = 8):
        torch.manual_seed(rank)
        base = AutoModelForCausalLM.from_pretrained(self.server.model, dtype=torch.float32)
        model = get_peft_model(base, LoraConfig(
            r=rank, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], init_lora_weights=False,
            task_type="CAUSAL_LM"))
        return model.eval()

    def rollout(self, model: str, prompt: list[int], **more) -> dict:
        """As the rollout worker of AsyncGRPO asks."""
        fields = {"model": model, "prompt": prompt, "max_tokens": 16, "temperature": 1.0, "top_p": 1.0, "top_k": -1,
                  "min_p": 0.0, "repetition_penalty": 1.0, "n": 1, "return_token_ids": True, "logprobs": 0,
                  "seed": 2**62 + 5} | more
        response = requests.post(f"{self.url}/v1/completions", json=fields, timeout=120)
        response.raise_for_status()
        return response.json()["choices"][0]

    def test_async_grpo_syncs_adapters(self):
        client = VLLMClient(self.url, 30)
        client.wait_for_server_ready()
        self.assertEqual(client.get_max_model_len(), POSITIONS)
        self.assertEqual(client.get_world_size(), 1)
        self.assertEqual(client.get_dtype(), "torch.float32")
        model = self.policy()
        config = AsyncGRPOConfig(output_dir=str(self.scratch / "out"), max_staleness=3, use_cpu=True, bf16=False,
                                 report_to=[])
        self.assertTrue(select_adapter_sync(client.get_server_info(), model, config))

        prompt = [72, 101, 108, 108]
        for version in range(1, 7):
            with torch.no_grad():
                for name, weight in model.named_parameters():
                    if "lora_B" in name:
                        weight.mul_(0.9)
            folder = self.scratch / f"trl-policy-v{version}"
            client.pause()
            model.save_pretrained(folder)
            client.load_lora_adapter(f"trl-policy-v{version}", str(folder))
            client.resume()
            if version > 3:
                client.unload_lora_adapter(f"trl-policy-v{version - 3}")
                shutil.rmtree(self.scratch / f"trl-policy-v{version - 3}")
            choice = self.rollout(f"trl-policy-v{version}", prompt)
            with torch.no_grad():
                logits = model(torch.tensor([prompt + choice["token_ids"]])).logits[0, len(prompt) - 1:-1]
            own = logits.log_softmax(-1).gather(1, torch.tensor(choice["token_ids"])[:, None])[:, 0]
            served = torch.tensor(choice["logprobs"]["token_logprobs"])
            self.assertLess((own - served).abs().max().item(), 2e-4)
        listed = {each["id"] for each in requests.get(f"{self.url}/v1/models", timeout=30).json()["data"]}
        self.assertEqual({name for name in listed if name.startswith("trl-policy")},
                         {f"trl-policy-v{version}" for version in (4, 5, 6)})
        with self.assertRaisesRegex(Exception, "has already been loaded"):
            client.load_lora_adapter("trl-policy-v6", str(folder))
        for version in (4, 5, 6):
            client.unload_lora_adapter(f"trl-policy-v{version}")

    def test_grpo_generates_and_scores(self):
        # It asks for the package, of which only the merged weights' way needs anything.
        with mock.patch("trl.generation.vllm_client.is_vllm_available", return_value=True):
            client = GrpoClient(base_url=self.url, connection_timeout=30)
        answers = client.generate([[72, 101, 108], [84, 104, 101, 32]], n=2, max_tokens=12, logprobs=0)
        self.assertEqual(len(answers["completion_ids"]), 4)
        self.assertEqual([len(ids) for ids in answers["prompt_ids"]], [3, 4])
        sequences = [[72, 101, 108, *answers["completion_ids"][0]]]
        scored = client.get_sequence_logprobs(sequences, [3], top_logprobs=100)
        self.assertEqual(len(scored["logprobs"][0]), len(answers["completion_ids"][0]))
        for row in scored["logprobs"][0]:
            self.assertEqual(len(row), 100)
            self.assertEqual(row, sorted(row, reverse=True))
        drawn = [each[0] if isinstance(each, list) else each for each in answers["logprobs"][0]]
        for own, [actual] in zip(drawn, scored["actual_logprobs"][0], strict=True):
            if actual != float("-inf"):  # not of the hundred likeliest
                self.assertAlmostEqual(own, actual, delta=2e-4)
        client.reset_prefix_cache()


if __name__ == "__main__":
    main()
