"""Holds the trained folder against transformers and PEFT in float32, and writes what they say of held-out text.

    python -m demo_model.check DATA MODEL       (from tools/; needs tools/goldens-requirements.txt)

Writes MODEL/held_out.jsonl, lines that `motley score` reads: tokens, adapter, and their log-probabilities. Prints
the perplexity of each voice's held-out answers under the base and every adapter.
"""

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from .train import ADAPTERS, exchanges_of

# Lines of each voice that are written.
WRITTEN = 80
# Lines of each voice that perplexities are taken from.
MEASURED = 120

LogProbabilities = Callable[[torch.Tensor], torch.Tensor]


def _load(folder: Path) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def _merge_shared_outer(model: torch.nn.Module, folder: Path, scale: float) -> None:
    """PEFT knows no shared factors, so they are added to the weights."""
    factors = {name: tensor.float() for name, tensor in load_file(folder / "adapter_model.safetensors").items()}

    def delta(module: str) -> torch.Tensor:
        a, b = (factors[f"base_model.model.model.layers.{module}.lora_{side}.weight"] for side in "AB")
        return scale * (b @ a)

    for index, layer in enumerate(model.model.layers):
        for leaf in ("q_proj", "k_proj", "v_proj", "o_proj"):
            getattr(layer.self_attn, leaf).weight += delta(f"{index}.self_attn.{leaf}")
        experts = layer.mlp.experts
        experts.gate_up_proj += torch.cat([delta(f"{index}.mlp.experts.{leaf}") for leaf in ("w1", "w3")], dim=1)
        experts.down_proj += delta(f"{index}.mlp.experts.w2")


def _model(folder: Path, adapter: str) -> torch.nn.Module:
    model = _load(folder)
    if adapter == "base":
        return model
    place = folder / "adapters" / adapter
    if ADAPTERS[adapter].shared_outer:
        _merge_shared_outer(model, place, ADAPTERS[adapter].scale)
        return model
    return PeftModel.from_pretrained(model, place).eval()


def _log_probabilities(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Entry i: of token i + 1, given those up to i."""
    logits = model(ids[None]).logits[0, :-1].double()
    return logits.log_softmax(-1).gather(1, ids[1:, None])[:, 0]


@torch.no_grad()
def main() -> None:
    torch.set_num_threads(1)
    data, folder = torch.load(sys.argv[1]), Path(sys.argv[2])
    voices = ["base", *ADAPTERS]
    held = {voice: [(ids, answer) for ids, answer in exchanges_of(data["held_out"][voice])] for voice in voices}
    lines = []
    print(f"| model | {' | '.join(voices)} |\n{'|---' * (len(voices) + 1)}|")
    for name in voices:
        model = _model(folder, name)
        row = []
        for voice in voices:
            total, count = 0.0, 0
            for index, (ids, answer) in enumerate(held[voice][:MEASURED]):
                found = _log_probabilities(model, ids)
                total, count = total - found[answer - 1 :].sum().item(), count + len(ids) - answer
                if voice == name and index < WRITTEN:
                    line: dict[str, object] = {"token_ids": ids.tolist(), "adapter": None if name == "base" else name}
                    line["token_logprobs"] = [None, *(round(value, 6) for value in found.tolist())]
                    lines.append(json.dumps(line))
            row.append(f"{math.exp(total / count):.1f}")
        print(f"| {name} | " + " | ".join(row) + " |", flush=True)
    (folder / "held_out.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
