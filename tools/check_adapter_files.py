#!/usr/bin/env python3
"""Adapters as PEFT writes them, of many kinds, scored by motley and by PEFT; and the same with a module taken out.

    python tools/check_adapter_files.py --motley build/release/motley [--keep FOLDER]

Needs tools/goldens-requirements.txt in a virtual environment. Another release of PEFT (from 0.18) may stand before it on
PYTHONPATH; kinds that it does not have are left out. Bases are those of tests/goldens, which transformers 4 reads in
part. Prints a line for each file; exit 1 where motley is further than 1e-4 from PEFT, or takes a file that lacks a
module.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

GOLDENS = Path(__file__).resolve().parent.parent / "tests/goldens"
WEIGHTS = "adapter_model.safetensors"
TOLERANCE = 1e-4
LINES, TOKENS = 2, 16


@dataclass(frozen=True)
class Kind:
    name: str
    model: str
    lora: dict[str, Any]
    save: dict[str, Any] = field(default_factory=dict)
    options: str = ""  # behind the adapter's path
    lose: str = ""  # a module whose loss must be noticed


SEVEN = ["q_a_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TABLES = {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"]}


def kinds() -> list[Kind]:
    found = [
        Kind("list", "deepseek_v3", {"target_modules": SEVEN}, lose="layers.2.self_attn.o_proj"),
        Kind("all_linear", "deepseek_v3", {"target_modules": "all-linear"}, lose="layers.1.self_attn.kv_b_proj"),
        Kind("regex", "llama", {"target_modules": r".*\.1\.mlp\.(up|down)_proj"}, lose="layers.1.mlp.up_proj"),
        Kind("excluded", "llama", {"target_modules": "all-linear", "exclude_modules": ["up_proj", "0.mlp.gate_proj"]}),
        Kind("layers", "mixtral", {"target_modules": ["q_proj", "w1", "w2", "w3"], "layers_to_transform": [1]}),
        Kind("router", "mixtral", {"target_modules": ["q_proj", "gate"]}),
        Kind("tables_twice", "qwen3_moe", TABLES, {"save_embedding_layers": True}),
        Kind("tied_tables_twice", "qwen3", TABLES, {"save_embedding_layers": True}),
        Kind("tied", "qwen3", {"target_modules": ["embed_tokens", "lm_head"], "ensure_weight_tying": True}),
        Kind("dora", "qwen3", {"target_modules": ["q_proj", "v_proj"], "use_dora": True}),
        Kind("biases", "qwen2_moe", {"target_modules": ["q_proj", "v_proj"], "bias": "all"}),
    ]
    if transformers.__version__.startswith("5."):
        down = {"target_modules": [], "target_parameters": ["mlp.experts.down_proj"]}
        found.append(Kind("square", "gpt_oss", down, options=",orientation=standard", lose="layers.1.mlp.experts"))
    for name, config in {"velora_config": "VeloraConfig", "monteclora_config": "MontecloraConfig"}.items():
        made = getattr(peft.tuners.lora.config, config, None)
        if made is not None:
            found.append(Kind(name, "qwen3_moe", {"target_modules": ["q_proj"], name: made()}))
    return found


def make(kind: Kind, folder: Path) -> list[dict[str, Any]]:
    """Writes the adapter with random numbers in all that is trained; returns PEFT's scores."""
    torch.manual_seed(1)
    base = transformers.AutoModelForCausalLM.from_pretrained(GOLDENS / kind.model, dtype=torch.float32)
    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", r=2, lora_alpha=2, **kind.lora))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and "velora" not in name and "monteclora" not in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
    model.save_pretrained(folder, **kind.save)
    model.eval()
    lines = []
    for ids in torch.randint(0, 100, (LINES, TOKENS)):
        with torch.no_grad():
            scores = model(input_ids=ids[None]).logits[0].log_softmax(-1)
        chosen = [scores[i, ids[i + 1]].item() for i in range(TOKENS - 1)]
        lines.append({"adapter": kind.name, "token_ids": ids.tolist(), "token_logprobs": [None, *chosen]})
    return lines


def score(motley: Path, kind: Kind, folder: Path, lines: list[dict[str, Any]]) -> tuple[float, str]:
    """The largest difference, or what was refused."""
    given, got = folder.parent / "given.jsonl", folder.parent / "got.jsonl"
    given.write_text("".join(json.dumps(line) + "\n" for line in lines))
    adapter = f"{kind.name}={folder}{kind.options}"
    command = [motley, "score", GOLDENS / kind.model, "--adapter", adapter, "--input", given, "--output", got]
    run = subprocess.run([*command, "--compute", "f32", "--device", "cpu"], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        return float("inf"), run.stderr.strip().splitlines()[-1]
    scored = [json.loads(line)["token_logprobs"] for line in got.read_text().splitlines()]
    differences = [
        abs(theirs - ours)
        for line, own in zip(lines, scored, strict=True)
        for theirs, ours in zip(line["token_logprobs"], own, strict=True)
        if theirs is not None
    ]
    return max(differences), ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--motley", type=Path, required=True)
    parser.add_argument("--keep", type=Path, help="a folder for the files, else they are removed")
    arguments = parser.parse_args()
    print(f"PEFT {peft.__version__}, transformers {transformers.__version__}")
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        for kind in kinds():
            folder = (arguments.keep or Path(scratch)) / kind.name
            try:
                lines = make(kind, folder)
            except Exception as error:  # what a release refuses is its own affair
                print(f"{kind.name}: not made: {str(error).splitlines()[0][:100]}")
                continue
            difference, refusal = score(arguments.motley, kind, folder, lines)
            wrong += difference > TOLERANCE
            print(f"{kind.name}: {refusal or f'{difference:.1e}'}")
            if kind.lose:
                tensors = {n: t for n, t in load_file(folder / WEIGHTS).items() if f"{kind.lose}." not in n}
                save_file(tensors, folder / WEIGHTS)
                noticed = "has no factors of" in score(arguments.motley, kind, folder, lines)[1]
                wrong += not noticed
                print(f"{kind.name} without {kind.lose}: {'refused' if noticed else 'TAKEN'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
