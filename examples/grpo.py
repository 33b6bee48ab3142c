#!/usr/bin/env python3
"""Trains an adapter by reinforcement while motley serves it: every step's weights are pushed, and sampled from next.

    pip install motley-*.whl torch transformers peft
    examples/grpo.py --model models/demo

GRPO on a CPU, in about two minutes: a group of answers to each prompt, a reward for each, and a gradient towards those
that are better than their group. The reward here is the share of words that begin with a letter; put yours in its place.
"""

import argparse
import re

import motley
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

PROMPTS = ["The", "In the morning", "Money", "A wise man", "Time", "My friend", "The sea", "Fear"]
ADAPTER = "policy"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="models/demo")
    parser.add_argument("--url", help="a server of this model that runs, with --allow-adapter-loading; else one is started")
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


def open_server(options: argparse.Namespace) -> motley.LLM:
    if options.url:
        return motley.LLM(url=options.url, key=options.key)
    return motley.LLM(options.model, device="cpu", compute="f32")


def logprobs(model: PeftModel, prompt: list[int], answers: list[list[int]]) -> torch.Tensor:
    """[answers, tokens] by the weights that are trained. Zeros behind an answer's end change nothing before it."""
    longest = max(len(answer) for answer in answers)
    padded = torch.tensor([answer + [0] * (longest - len(answer)) for answer in answers])
    rows = torch.cat([torch.tensor([prompt] * len(answers)), padded[:, :-1]], dim=1)
    logits = model(rows).logits[:, len(prompt) - 1:]
    return logits.log_softmax(-1).gather(2, padded[:, :, None])[:, :, 0]


def group_loss(model: PeftModel, answers: motley.RequestOutput, advantages: torch.Tensor) -> tuple[torch.Tensor, float]:
    """GRPO's clipped loss over a group, and how far the server's log-probabilities are from the trainer's."""
    own = logprobs(model, answers.prompt_token_ids, [answer.token_ids for answer in answers.outputs])
    loss, apart = torch.zeros(()), 0.0
    for answer, advantage, row in zip(answers.outputs, advantages, own, strict=True):
        served = torch.tensor([found[token].logprob for token, found in zip(answer.token_ids, answer.logprobs)])
        row = row[:len(served)]
        apart = max(apart, (row.detach() - served).abs().max().item())
        ratio = (row - served).exp()
        loss = loss - torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    return loss / len(answers.outputs), apart


def main() -> None:
    options = arguments()
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    model = get_peft_model(base, LoraConfig(
        r=8, lora_alpha=16, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
        target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]))
    optimizer = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=options.rate)
    with open_server(options) as llm:
        version = llm.push_adapter(ADAPTER, model, version="step-0").version
        for step in range(1, options.steps + 1):
            rewards, apart = [], 0.0
            optimizer.zero_grad()
            for i in range(2):
                prompt = PROMPTS[(2 * step + i) % len(PROMPTS)]
                params = motley.SamplingParams(n=options.group, max_tokens=options.tokens, seed=100 * step + i, logprobs=0)
                answers = llm.generate(prompt, params, adapter=ADAPTER)[0]
                if answers.adapter_version != version:
                    raise SystemExit(f"sampled from {answers.adapter_version}, pushed {version}")
                scores = torch.tensor([reward(answer.text, options.letter) for answer in answers.outputs])
                rewards.append(scores.mean().item())
                loss, group_apart = group_loss(model, answers, (scores - scores.mean()) / (scores.std() + 1e-4))
                loss.backward()
                apart = max(apart, group_apart)
            optimizer.step()
            # With the expected version: no other trainer has pushed in between.
            version = llm.push_adapter(ADAPTER, model, version=f"step-{step}", expected_version=version).version
            print(f"step {step:3}  reward {sum(rewards) / len(rewards):.3f}  log-probabilities apart {apart:.1e}  "
                  f"pushed {version}", flush=True)


if __name__ == "__main__":
    main()
