"""The demo model as its trainer runs it: a Qwen3-MoE whose every expert computes every token, with LoRA inside."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Shape:
    vocabulary: int = 4096
    hidden: int = 192
    layers: int = 4
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 32
    experts: int = 16
    top_k: int = 4
    intermediate: int = 128
    positions: int = 1024
    rope_theta: float = 10000.0
    norm_eps: float = 1e-6

    def config(self) -> dict[str, object]:
        """config.json of the checkpoint."""
        return {
            "_name_or_path": "motley-demo",  # as the adapters name their base
            "architectures": ["Qwen3MoeForCausalLM"],
            "model_type": "qwen3_moe",
            "vocab_size": self.vocabulary,
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate * self.top_k,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "num_experts": self.experts,
            "num_experts_per_tok": self.top_k,
            "moe_intermediate_size": self.intermediate,
            "norm_topk_prob": True,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
            "max_position_embeddings": self.positions,
            "rope_theta": self.rope_theta,
            "rms_norm_eps": self.norm_eps,
            "hidden_act": "silu",
            "attention_bias": False,
            "use_sliding_window": False,
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
        }


@dataclass(frozen=True)
class LoraShape:
    """An adapter on attention and experts. With `shared_outer` all experts share gate and up's A, and down's B."""

    rank: int
    alpha: float
    rs: bool = False
    shared_outer: bool = False

    @property
    def scale(self) -> float:
        return self.alpha / (self.rank**0.5 if self.rs else self.rank)


def fresh_weights(shape: Shape, seed: int, device: str) -> Tensors:
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int, deviation: float = 0.02) -> torch.Tensor:
        return (torch.randn(*size, generator=generator) * deviation).to(device)

    inner = shape.heads * shape.head_dim
    kv = shape.kv_heads * shape.head_dim
    outward = 0.02 / (2 * shape.layers) ** 0.5
    weights = {"embed": normal(shape.vocabulary, shape.hidden), "norm": torch.ones(shape.hidden, device=device)}
    for layer in range(shape.layers):
        weights |= {
            f"{layer}.input_norm": torch.ones(shape.hidden, device=device),
            f"{layer}.q": normal(inner, shape.hidden),
            f"{layer}.k": normal(kv, shape.hidden),
            f"{layer}.v": normal(kv, shape.hidden),
            f"{layer}.o": normal(shape.hidden, inner, deviation=outward),
            f"{layer}.q_norm": torch.ones(shape.head_dim, device=device),
            f"{layer}.k_norm": torch.ones(shape.head_dim, device=device),
            f"{layer}.ffn_norm": torch.ones(shape.hidden, device=device),
            f"{layer}.router": normal(shape.experts, shape.hidden),
            f"{layer}.gate_up": normal(shape.experts, 2 * shape.intermediate, shape.hidden),
            f"{layer}.down": normal(shape.experts, shape.hidden, shape.intermediate, deviation=outward),
        }
    return weights


def fresh_lora(shape: Shape, lora: LoraShape, seed: int, device: str) -> Tensors:
    """A [E | 1,r,in] and B [E | 1,out,r]; dense sites have no expert axis. B is zero: the adapter begins as the base."""
    generator = torch.Generator().manual_seed(seed)

    def a(*size: int) -> torch.Tensor:
        return (torch.randn(*size, generator=generator) / size[-1] ** 0.5).to(device)

    def zeros(*size: int) -> torch.Tensor:
        return torch.zeros(*size, device=device)

    inner = shape.heads * shape.head_dim
    kv = shape.kv_heads * shape.head_dim
    sizes = {"q": (shape.hidden, inner), "k": (shape.hidden, kv), "v": (shape.hidden, kv), "o": (inner, shape.hidden)}
    outer = 1 if lora.shared_outer else shape.experts
    made: Tensors = {}
    for layer in range(shape.layers):
        for name, (width, out) in sizes.items():
            made[f"{layer}.{name}.a"] = a(lora.rank, width)
            made[f"{layer}.{name}.b"] = zeros(out, lora.rank)
        made[f"{layer}.gate_up.a"] = a(outer, lora.rank, shape.hidden)
        made[f"{layer}.gate_up.b"] = zeros(shape.experts, 2 * shape.intermediate, lora.rank)
        made[f"{layer}.down.a"] = a(shape.experts, lora.rank, shape.intermediate)
        made[f"{layer}.down.b"] = zeros(outer, shape.hidden, lora.rank)
    return made


class RouterLosses(NamedTuple):
    """`balance` is 1 where all experts are chosen as often. `tie` is the weight of the least expert that is chosen, as
    far as the next one nearly was: what rounding can do to an answer by turning the choice around."""

    balance: torch.Tensor
    tie: torch.Tensor


class Network:
    """Logits and router losses of token ids [batch, length]; `adapter` may be None."""

    def __init__(
        self,
        shape: Shape,
        weights: Tensors,
        adapter: tuple[LoraShape, Tensors] | None = None,
        jitter: float = 0.0,
    ) -> None:
        """`jitter` scales what routers see by up to that share, so that near ties among experts cost little."""
        self.shape = shape
        self.weights = weights
        self.adapter = adapter
        self.jitter = jitter

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weights[name].to(x.dtype), self.shape.norm_eps)

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        y = F.linear(x, self.weights[name].to(x.dtype))
        if self.adapter is None:
            return y
        lora, factors = self.adapter
        rows = F.linear(x, factors[f"{name}.a"].to(x.dtype)) * lora.scale
        return y + F.linear(rows, factors[f"{name}.b"].to(x.dtype))

    def _experts(self, x: torch.Tensor, name: str, shared_input: bool) -> torch.Tensor:
        """[T,in] (or [T,E,in]) -> [T,E,out]."""
        inputs = "td" if shared_input else "ted"
        y = torch.einsum(f"{inputs},efd->tef", x, self.weights[name].to(x.dtype))
        if self.adapter is None:
            return y
        lora, factors = self.adapter
        a = factors[f"{name}.a"].expand(self.shape.experts, -1, -1).to(x.dtype)
        b = factors[f"{name}.b"].expand(self.shape.experts, -1, -1).to(x.dtype)
        rows = torch.einsum(f"{inputs},erd->ter", x, a) * lora.scale
        return y + torch.einsum("ter,efr->tef", rows, b)

    def _rope(self, x: torch.Tensor) -> torch.Tensor:
        """[batch,heads,length,dim], halves rotated against each other."""
        half = self.shape.head_dim // 2
        steps = torch.arange(half, device=x.device, dtype=torch.float32)
        frequencies = self.shape.rope_theta ** (-steps / half)
        angles = torch.arange(x.shape[2], device=x.device, dtype=torch.float32)[:, None] * frequencies
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        first, second = x[..., :half], x[..., half:]
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    def _attention(self, x: torch.Tensor, layer: int) -> torch.Tensor:
        batch, length, _ = x.shape
        shape = self.shape

        def heads(name: str, count: int) -> torch.Tensor:
            return self._linear(x, f"{layer}.{name}").view(batch, length, count, shape.head_dim)

        q = self._rope(self._norm(heads("q", shape.heads), f"{layer}.q_norm").transpose(1, 2))
        k = self._rope(self._norm(heads("k", shape.kv_heads), f"{layer}.k_norm").transpose(1, 2))
        v = heads("v", shape.kv_heads).transpose(1, 2)
        group = shape.heads // shape.kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self._linear(out.transpose(1, 2).reshape(batch, length, -1), f"{layer}.o")

    def _mixture(self, x: torch.Tensor, layer: int) -> tuple[torch.Tensor, RouterLosses]:
        shape = self.shape
        rows = x.reshape(-1, shape.hidden)
        seen = rows.float()
        if self.jitter > 0:
            seen = seen * (1 + self.jitter * (2 * torch.rand_like(seen) - 1))
        logits = F.linear(seen, self.weights[f"{layer}.router"].float())
        scores = logits.softmax(-1)
        ordered, order = logits.topk(shape.top_k + 1, dim=-1)
        gap = ordered[:, -2] - ordered[:, -1]
        chosen = order[:, :-1]
        best = scores.gather(1, chosen)
        best = best / best.sum(-1, keepdim=True)
        weights = torch.zeros_like(scores).scatter(1, chosen, best)
        share = (weights > 0).float().mean(0) / shape.top_k
        losses = RouterLosses(
            balance=shape.experts * (share * scores.mean(0)).sum(),
            tie=(best[:, -1] * F.relu(1 - gap)).mean(),
        )
        gate, up = self._experts(rows, f"{layer}.gate_up", True).chunk(2, dim=-1)
        out = self._experts(F.silu(gate) * up, f"{layer}.down", False)
        mixed = torch.einsum("teh,te->th", out, weights.to(out.dtype))
        return mixed.view_as(x), losses

    def __call__(self, ids: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, RouterLosses]:
        x = F.embedding(ids, self.weights["embed"]).to(dtype)
        balance = tie = torch.zeros((), device=ids.device)
        for layer in range(self.shape.layers):
            x = x + self._attention(self._norm(x, f"{layer}.input_norm"), layer)
            mixed, losses = self._mixture(self._norm(x, f"{layer}.ffn_norm"), layer)
            x = x + mixed
            balance = balance + losses.balance / self.shape.layers
            tie = tie + losses.tie / self.shape.layers
        logits = F.linear(self._norm(x, "norm"), self.weights["embed"].to(dtype))
        return logits.float(), RouterLosses(balance, tie)
