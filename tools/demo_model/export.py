"""Writes the trained model and its adapters as Hugging Face and PEFT folders do, in bf16."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from .network import LoraShape, Shape, Tensors

PEFT_PREFIX = "base_model.model.model.layers"
ATTENTION = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj"}


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def _save(tensors: Tensors, path: Path) -> None:
    save_file({name: tensor.bfloat16().cpu().contiguous() for name, tensor in tensors.items()}, path, {"format": "pt"})


def write_base(shape: Shape, weights: Tensors, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    named: Tensors = {"model.embed_tokens.weight": weights["embed"], "model.norm.weight": weights["norm"]}
    for layer in range(shape.layers):
        block = f"model.layers.{layer}"
        named |= {
            f"{block}.input_layernorm.weight": weights[f"{layer}.input_norm"],
            f"{block}.post_attention_layernorm.weight": weights[f"{layer}.ffn_norm"],
            f"{block}.self_attn.q_norm.weight": weights[f"{layer}.q_norm"],
            f"{block}.self_attn.k_norm.weight": weights[f"{layer}.k_norm"],
            f"{block}.mlp.gate.weight": weights[f"{layer}.router"],
        }
        for name, leaf in ATTENTION.items():
            named[f"{block}.self_attn.{leaf}.weight"] = weights[f"{layer}.{name}"]
        for expert in range(shape.experts):
            gate, up = weights[f"{layer}.gate_up"][expert].chunk(2)
            named[f"{block}.mlp.experts.{expert}.gate_proj.weight"] = gate
            named[f"{block}.mlp.experts.{expert}.up_proj.weight"] = up
            named[f"{block}.mlp.experts.{expert}.down_proj.weight"] = weights[f"{layer}.down"][expert]
    _save(named, folder / "model.safetensors")
    _write_json(folder / "config.json", shape.config())


def _expert_factors(layer: int, lora: LoraShape, factors: Tensors) -> Tensors:
    a, b = factors[f"{layer}.gate_up.a"], factors[f"{layer}.gate_up.b"]
    down_a, down_b = factors[f"{layer}.down.a"], factors[f"{layer}.down.b"]
    experts = f"{PEFT_PREFIX}.{layer}.mlp.experts"
    if lora.shared_outer:
        gate, up = b.chunk(2, dim=1)
        return {
            f"{experts}.w1.lora_A.weight": a,
            f"{experts}.w1.lora_B.weight": gate,
            f"{experts}.w3.lora_A.weight": a.clone(),
            f"{experts}.w3.lora_B.weight": up,
            f"{experts}.w2.lora_A.weight": down_a,
            f"{experts}.w2.lora_B.weight": down_b,
        }

    def flat(name: str, a: torch.Tensor, b: torch.Tensor) -> Tensors:
        """A's rows by expert, then rank; B's columns by rank, then expert."""
        return {
            f"{name}.lora_A.weight": a.flatten(0, 1),
            f"{name}.lora_B.weight": b.permute(1, 2, 0).flatten(1),
        }

    return flat(f"{experts}.base_layer", a, b) | flat(experts, down_a, down_b)


def write_adapter(shape: Shape, name: str, lora: LoraShape, factors: Tensors, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    named: Tensors = {}
    for layer in range(shape.layers):
        for site, leaf in ATTENTION.items():
            module = f"{PEFT_PREFIX}.{layer}.self_attn.{leaf}"
            named[f"{module}.lora_A.weight"] = factors[f"{layer}.{site}.a"]
            named[f"{module}.lora_B.weight"] = factors[f"{layer}.{site}.b"]
        named |= _expert_factors(layer, lora, factors)
    _save(named, folder / "adapter_model.safetensors")
    config: dict[str, object] = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "motley-demo",
        "inference_mode": True,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": 0.0,
        "use_rslora": lora.rs,
        "bias": "none",
        "target_modules": sorted(ATTENTION.values()),
    }
    if not lora.shared_outer:
        config["target_parameters"] = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
    _write_json(folder / "adapter_config.json", config)
