#!/usr/bin/env python3
"""Trains an adapter by reinforcement while motley serves it: every step's weights are pushed, and sampled from next.

    motley serve models/demo --device cpu --compute f32 --allow-adapter-loading --port 8000
    pip install torch transformers peft requests
    examples/grpo.py --model models/demo --url http://localhost:8000

GRPO on a CPU, in about two minutes: a group of answers to each prompt, a reward for each, and a gradient towards those
that are better than their group. The reward here is the share of words that begin with a letter; put yours in its place.
"""

import argparse
import json
import re

import requests
import safetensors.torch
import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from transformers import AutoModelForCausalLM

PROMPTS = ["The", "In the morning", "Money", "A wise man", "Time", "My friend", "The sea", "Fear"]
ADAPTER = "policy"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="models/demo", help="the folder that the server serves")
    parser.add_argument("--url", default="http://localhost:8000")
    parser.add_argument("--key", help="the server's key, if it has one")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--group", type=int, default=8, help="answers to each prompt")
    parser.add_argument("--tokens", type=int, default=24, help="of an answer")
    parser.add_argument("--letter", default="s", help="that words should begin with")
    parser.add_argument("--rate", type=float, default=4e-3)
    return parser.parse_args()


def reward(text: str, letter: str) -> float:
    words = re.findall(r"[a-z']+", text.lower())
    return sum(word.startswith(letter) for word in words) / max(len(words), 4)


class Server:
    """What a trainer asks of motley: push an adapter, sample from it."""

    def __init__(self, url: str, key: str | None) -> None:
        self.url = url
        self.session = requests.Session()
        if key:
            self.session.headers["Authorization"] = f"Bearer {key}"

    def push(self, model: PeftModel, version: str, expected: str | None) -> dict:
        """The adapter as one safetensors body; the old version serves until the new one is whole."""
        config = json.dumps(model.peft_config["default"].to_dict(), default=list)
        tensors = {name: tensor.contiguous() for name, tensor in get_peft_model_state_dict(model).items()}
        body = safetensors.torch.save(tensors, metadata={"adapter_config": config})
        query = {"version": version}
        if expected is not None:  # no other trainer has pushed in between
            query["expected_version"] = expected
        return self._checked(self.session.put(f"{self.url}/v1/adapters/{ADAPTER}", params=query, data=body))

    def sample(self, prompt: str, group: int, tokens: int, seed: int) -> dict:
        return self._checked(self.session.post(f"{self.url}/v1/completions", json={
            "model": ADAPTER, "prompt": prompt, "n": group, "max_tokens": tokens, "temperature": 1.0, "top_p": 1.0,
            "top_k": -1, "min_p": 0, "repetition_penalty": 1.0, "seed": seed, "logprobs": 0, "return_token_ids": True}))

    @staticmethod
    def _checked(response: requests.Response) -> dict:
        if not response.ok:
            raise SystemExit(f"{response.request.method} {response.url}: {response.status_code} {response.text}")
        return response.json()


def logprobs(model: PeftModel, prompt: list[int], answers: list[list[int]]) -> torch.Tensor:
    """[answers, tokens] by the weights that are trained. Zeros behind an answer's end change nothing before it."""
    longest = max(len(answer) for answer in answers)
    padded = torch.tensor([answer + [0] * (longest - len(answer)) for answer in answers])
    rows = torch.cat([torch.tensor([prompt] * len(answers)), padded[:, :-1]], dim=1)
    logits = model(rows).logits[:, len(prompt) - 1:]
    return logits.log_softmax(-1).gather(2, padded[:, :, None])[:, :, 0]


def group_loss(model: PeftModel, answers: dict, advantages: torch.Tensor) -> tuple[torch.Tensor, float]:
    """GRPO's clipped loss over a group, and how far the server's log-probabilities are from the trainer's."""
    choices = answers["choices"]
    own = logprobs(model, choices[0]["prompt_token_ids"], [choice["token_ids"] for choice in choices])
    loss, apart = torch.zeros(()), 0.0
    for choice, advantage, row in zip(choices, advantages, own, strict=True):
        served = torch.tensor(choice["logprobs"]["token_logprobs"])
        row = row[:len(served)]
        apart = max(apart, (row.detach() - served).abs().max().item())
        ratio = (row - served).exp()
        loss = loss - torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    return loss / len(choices), apart


def main() -> None:
    options = arguments()
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    model = get_peft_model(base, LoraConfig(
        r=8, lora_alpha=16, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
        target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]))
    optimizer = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=options.rate)
    server = Server(options.url, options.key)
    version = server.push(model, "step-0", None)["version"]
    for step in range(1, options.steps + 1):
        rewards, apart = [], 0.0
        optimizer.zero_grad()
        for i in range(2):
            prompt = PROMPTS[(2 * step + i) % len(PROMPTS)]
            answers = server.sample(prompt, options.group, options.tokens, seed=100 * step + i)
            if answers["adapter_version"] != version:
                raise SystemExit(f"sampled from {answers['adapter_version']}, pushed {version}")
            scores = torch.tensor([reward(choice["text"], options.letter) for choice in answers["choices"]])
            rewards.append(scores.mean().item())
            loss, group_apart = group_loss(model, answers, (scores - scores.mean()) / (scores.std() + 1e-4))
            loss.backward()
            apart = max(apart, group_apart)
        optimizer.step()
        version = server.push(model, f"step-{step}", version)["version"]
        print(f"step {step:3}  reward {sum(rewards) / len(rewards):.3f}  log-probabilities apart {apart:.1e}  "
              f"pushed {version}", flush=True)


if __name__ == "__main__":
    main()
