"""What checkpoints and adapters of each family hold: released names, and sizes that keep hidden states as they are."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .formats import Plain, Range
from .tensors import Recipe, filled

Config = dict[str, Any]

# A router's logits spread over a few units, so that its choice is clear in most rows.
_ROUTER_GAIN = {"qwen3_moe": 2.0, "qwen3_5_moe_text": 2.0, "gpt_oss": 2.0, "deepseek_v3": 1.0, "glm4_moe": 1.0}
# Experts add as much to the hidden state as attention does; a routed scale takes its part of that.
_GAINS = {"q_proj": 1.4, "k_proj": 1.4, "q_b_proj": 1.4, "o_proj": 1.5, "out_proj": 1.5, "down_proj": 3.0}


class Checkpoint:
    """Collects recipes; `layers` is the range that names run over."""

    def __init__(self, config: Config, weights: Plain) -> None:
        self.config = config
        self.weights = weights
        self.recipes: list[Recipe] = []

    def linear(self, module: str, out: int, inner: int, ranges: tuple[Range, ...]) -> None:
        gain = _GAINS.get(module.rpartition(".")[2], 1.0)
        if module.endswith("down_proj"):
            gain /= self.config.get("routed_scaling_factor", 1.0)
        self.recipes += self.weights.linear(module, out, inner, gain / math.sqrt(inner), ranges)

    def fused(self, module: str, experts: int, inner: int, out: int, ranges: tuple[Range, ...]) -> None:
        self.recipes += self.weights.fused(module, experts, inner, out, 1 / math.sqrt(inner), ranges)

    def norm(self, module: str, size: int, ranges: tuple[Range, ...] = (), mean: float = 1.0) -> None:
        """Qwen3.5 stores what is added to 1."""
        stored = mean - 1 if self.config["model_type"] == "qwen3_5_moe_text" else mean
        self.recipes.append(filled(f"{module}.weight", (size,), 0.15 * mean, stored, ranges=ranges))

    def plain(
        self, name: str, shape: Iterable[int], deviation: float, ranges: tuple[Range, ...] = (), dtype: str = "BF16"
    ) -> None:
        self.recipes.append(filled(name, tuple(shape), deviation, dtype=dtype, ranges=ranges))

    def gated(self, path: str, inner: int, ranges: tuple[Range, ...]) -> None:
        hidden = self.config["hidden_size"]
        self.linear(f"{path}.gate_proj", inner, hidden, ranges)
        self.linear(f"{path}.up_proj", inner, hidden, ranges)
        self.linear(f"{path}.down_proj", hidden, inner, ranges)


def checkpoint(config: Config, weights: Plain) -> list[Recipe]:
    made = Checkpoint(config, weights)
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    layers = ((0, config["num_hidden_layers"]),)
    made.plain("model.embed_tokens.weight", (vocabulary, hidden), 1.0)
    made.plain("lm_head.weight", (vocabulary, hidden), 2.0 / math.sqrt(hidden))
    made.norm("model.norm", hidden)
    for norm in ("input_layernorm", "post_attention_layernorm"):
        made.norm(f"model.layers.{{}}.{norm}", hidden, layers)
    _mixers(made, layers)
    _FEED_FORWARDS[config["model_type"]](made, layers)
    return made.recipes


def _mixers(made: Checkpoint, layers: tuple[Range, ...]) -> None:
    family = made.config["model_type"]
    if family == "deepseek_v3":
        _latent_attention(made, layers)
    elif family == "qwen3_5_moe_text":
        nets, count = made.config["layer_types"].count("linear_attention"), layers[0][1]  # they come first
        _delta_net(made, ((0, nets),))
        if nets < count:
            _grouped_attention(made, ((nets, count),))
    else:
        _grouped_attention(made, layers)


def _delta_net(made: Checkpoint, layers: tuple[Range, ...]) -> None:
    """The decays and in_proj_a and in_proj_b stay plain in every format, as releases have it."""
    config, path = made.config, "model.layers.{}.linear_attn"
    hidden, heads = config["hidden_size"], config["linear_num_value_heads"]
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    values = heads * config["linear_value_head_dim"]
    made.linear(f"{path}.in_proj_qkv", 2 * keys + values, hidden, layers)
    made.linear(f"{path}.in_proj_z", values, hidden, layers)
    for module in ("in_proj_b", "in_proj_a"):
        made.plain(f"{path}.{module}.weight", (heads, hidden), 1 / math.sqrt(hidden), layers)
    made.linear(f"{path}.out_proj", hidden, values, layers)
    taps = config["linear_conv_kernel_dim"]
    made.plain(f"{path}.conv1d.weight", (2 * keys + values, 1, taps), 1.5 / math.sqrt(taps), layers)
    # What a token leaves of the state is between a fifth and nearly all.
    made.recipes.append(filled(f"{path}.A_log", (heads,), 1.0, math.log(0.12), "F32", layers))
    made.recipes.append(filled(f"{path}.dt_bias", (heads,), 0.5, 0.5, ranges=layers))
    made.recipes.append(filled(f"{path}.norm.weight", (config["linear_value_head_dim"],), 0.15, 1.0, "F32", layers))


def _grouped_attention(made: Checkpoint, layers: tuple[Range, ...]) -> None:
    config, path = made.config, "model.layers.{}.self_attn"
    hidden, width = config["hidden_size"], config["head_dim"]
    queries, gated = config["num_attention_heads"] * width, config["model_type"] == "qwen3_5_moe_text"
    outputs = {
        "q_proj": 2 * queries if gated else queries,
        "k_proj": config["num_key_value_heads"] * width,
        "v_proj": config["num_key_value_heads"] * width,
    }
    for module, out in outputs.items():
        made.linear(f"{path}.{module}", out, hidden, layers)
        if config.get("attention_bias"):
            made.plain(f"{path}.{module}.bias", (out,), 0.3, layers)
    made.linear(f"{path}.o_proj", hidden, queries, layers)
    if config["model_type"] == "gpt_oss":
        made.plain(f"{path}.o_proj.bias", (hidden,), 0.1, layers)
        made.plain(f"{path}.sinks", (config["num_attention_heads"],), 1.0, layers)
    if config["model_type"].startswith("qwen3") or config.get("use_qk_norm"):
        made.norm(f"{path}.q_norm", width, layers, mean=1.4)
        made.norm(f"{path}.k_norm", width, layers, mean=1.4)


def _latent_attention(made: Checkpoint, layers: tuple[Range, ...]) -> None:
    config, path = made.config, "model.layers.{}.self_attn"
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    queries, latent = config["q_lora_rank"], config["kv_lora_rank"]
    nope, rope, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    made.linear(f"{path}.q_a_proj", queries, hidden, layers)
    made.norm(f"{path}.q_a_layernorm", queries, layers)
    made.linear(f"{path}.q_b_proj", heads * (nope + rope), queries, layers)
    made.linear(f"{path}.kv_a_proj_with_mqa", latent + rope, hidden, layers)
    made.norm(f"{path}.kv_a_layernorm", latent, layers)
    made.linear(f"{path}.kv_b_proj", heads * (nope + value), latent, layers)
    made.linear(f"{path}.o_proj", hidden, heads * value, layers)


def _router(made: Checkpoint, name: str, experts: int, layers: tuple[Range, ...]) -> None:
    config = made.config
    gain = _ROUTER_GAIN[config["model_type"]]
    made.plain(name, (experts, config["hidden_size"]), gain / math.sqrt(config["hidden_size"]), layers)


def _qwen3_moe(made: Checkpoint, layers: tuple[Range, ...]) -> None:
    experts = made.config["num_experts"]
    _router(made, "model.layers.{}.mlp.gate.weight", experts, layers)
    made.gated("model.layers.{}.mlp.experts.{}", made.config["moe_intermediate_size"], (*layers, (0, experts)))


def _qwen3_5_moe(made: Checkpoint, layers: tuple[Range, ...]) -> None:
    _qwen3_moe(made, layers)
    made.gated("model.layers.{}.mlp.shared_expert", made.config["shared_expert_intermediate_size"], layers)
    hidden = made.config["hidden_size"]
    made.plain("model.layers.{}.mlp.shared_expert_gate.weight", (1, hidden), 1 / math.sqrt(hidden), layers)


def _dense_first(made: Checkpoint, layers: tuple[Range, ...]) -> None:
    """DeepSeek-V3 and GLM-4.5: dense layers, then experts with a correction bias and shared experts."""
    config, path = made.config, "model.layers.{}.mlp"
    dense, experts = config["first_k_dense_replace"], config["n_routed_experts"]
    first, sparse = ((0, dense),), ((dense, layers[0][1]),)
    inner = config["moe_intermediate_size"]
    made.gated(path, config["intermediate_size"], first)
    _router(made, f"{path}.gate.weight", experts, sparse)
    made.plain(f"{path}.gate.e_score_correction_bias", (experts,), 0.05, sparse, "F32")
    made.gated(f"{path}.experts.{{}}", inner, (*sparse, (0, experts)))
    made.gated(f"{path}.shared_experts", inner * config["n_shared_experts"], sparse)


def _gpt_oss(made: Checkpoint, layers: tuple[Range, ...]) -> None:
    """Experts are fused, [in, out], gate and up interleaved."""
    config, path = made.config, "model.layers.{}.mlp"
    hidden, inner, experts = config["hidden_size"], config["intermediate_size"], config["num_local_experts"]
    _router(made, f"{path}.router.weight", experts, layers)
    made.plain(f"{path}.router.bias", (experts,), 0.5, layers)
    made.fused(f"{path}.experts.gate_up_proj", experts, hidden, 2 * inner, layers)
    made.plain(f"{path}.experts.gate_up_proj_bias", (experts, 2 * inner), 0.3, layers)
    made.fused(f"{path}.experts.down_proj", experts, inner, hidden, layers)
    made.plain(f"{path}.experts.down_proj_bias", (experts, hidden), 0.1, layers)


_FEED_FORWARDS = {
    "qwen3_moe": _qwen3_moe,
    "qwen3_5_moe_text": _qwen3_5_moe,
    "deepseek_v3": _dense_first,
    "glm4_moe": _dense_first,
    "gpt_oss": _gpt_oss,
}


@dataclass(frozen=True)
class Adapter:
    """A PEFT adapter. A part is a group of modules; each factor pair has the rank."""

    name: str
    rank: int
    parts: tuple[str, ...]  # attention, router, experts, shared, dense

    def config(self, base: Config) -> dict[str, Any]:
        parameters = {
            "experts": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"],
            "router": [f"mlp.{_router_module(base)}.weight"],
        }
        modules = {leaf for path in self._modules(base) for leaf in [path.rpartition(".")[2]]}
        return {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "r": self.rank,
            "lora_alpha": self.rank,
            "bias": "none",
            "inference_mode": True,
            "target_modules": sorted(modules),
            "target_parameters": [name for part in self.parts for name in parameters.get(part, [])],
            "peft_version": "0.21.2",
        }

    def recipes(self, base: Config) -> list[Recipe]:
        made = []
        for path, (out, inner, ranges) in self._modules(base).items():
            made += _factors(path, self.rank, out, inner, ranges)
        sparse = ((base.get("first_k_dense_replace", 0), base["num_hidden_layers"]),)
        hidden, experts, intermediate = base["hidden_size"], _experts(base), _expert_width(base)
        if "router" in self.parts:
            made += _factors(f"model.layers.{{}}.mlp.{_router_module(base)}", self.rank, experts, hidden, sparse)
        if "experts" in self.parts:
            path = "model.layers.{}.mlp.experts"
            made += _factors(f"{path}.base_layer", self.rank, 2 * intermediate, hidden, sparse, experts)
            made += _factors(path, self.rank, hidden, intermediate, sparse, experts)
        return made

    def _modules(self, base: Config) -> dict[str, tuple[int, int, tuple[Range, ...]]]:
        """The Linears of these parts: [out, in] and the layers that have them."""
        made = Checkpoint(base, Plain())
        layers = ((0, base["num_hidden_layers"]),)
        dense = base.get("first_k_dense_replace", 0)
        sparse = ((dense, layers[0][1]),)
        if "attention" in self.parts:
            _mixers(made, layers)
        if "dense" in self.parts:
            made.gated("model.layers.{}.mlp", base["intermediate_size"], ((0, dense),))
        if "shared" in self.parts:
            made.gated("model.layers.{}.mlp.shared_experts", _expert_width(base) * base["n_shared_experts"], sparse)
        return {
            recipe.name.removesuffix(".weight"): (*recipe.shape, recipe.ranges)
            for recipe in made.recipes
            if len(recipe.shape) == 2
        }


def _factors(path: str, rank: int, out: int, inner: int, ranges: tuple[Range, ...], experts: int = 1) -> list[Recipe]:
    """A [experts * rank, in], B [out, experts * rank]: the delta is half as large as what it is added to."""
    stem = f"base_model.model.{path}"
    return [
        filled(f"{stem}.lora_A.weight", (experts * rank, inner), 1 / math.sqrt(inner), ranges=ranges),
        filled(f"{stem}.lora_B.weight", (out, experts * rank), 0.5 / math.sqrt(rank), ranges=ranges),
    ]


def _router_module(base: Config) -> str:
    return "router" if base["model_type"] == "gpt_oss" else "gate"


def _experts(base: Config) -> int:
    return next(base[k] for k in ("num_experts", "num_local_experts", "n_routed_experts") if k in base)


def _expert_width(base: Config) -> int:
    return base.get("moe_intermediate_size") or base["intermediate_size"]
