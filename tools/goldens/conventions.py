"""Rewrites a standard PEFT adapter of fused experts into the other conventions of formats.md section 2.

Standard (2.2): under `M = ...mlp.experts`, `M.base_layer` holds gate_up and `M` holds down, or `M` holds the only one.
lora_A [E*r,in] has row e*r+k for rank k of expert e; lora_B [out,r*E] has column k*E+e.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

Tensors = dict[str, torch.Tensor]

PREFIX = "base_model.model."

GATE_UP, DOWN = "gate_up", "down"


@dataclass(frozen=True)
class Factors:
    """One fused projection of one layer: delta_e = scale * b[e] @ a[e]."""

    a: torch.Tensor  # [E,r,in]
    b: torch.Tensor  # [E,out,r]


@dataclass(frozen=True)
class Halves:
    """How the rows of gate_up interleave, and which ranks serve which half."""

    interleaved: bool  # gpt-oss: row 2i is gate, 2i+1 is up; else gate rows come first
    block_diagonal: bool  # the first half of the ranks belongs to gate, the second to up

    def rows(self, b: torch.Tensor, up: bool) -> torch.Tensor:
        """The gate or up rows of b [...,out,r]."""
        if self.interleaved:
            return b[..., int(up) :: 2, :]
        half = b.shape[-2] // 2
        return b[..., half:, :] if up else b[..., :half, :]

    def part(self, fused: Factors, up: bool) -> Factors:
        b = self.rows(fused.b, up)
        if not self.block_diagonal:
            return Factors(fused.a, b)
        half = fused.a.shape[1] // 2
        ranks = slice(half, None) if up else slice(0, half)
        return Factors(fused.a[:, ranks], b[:, :, ranks])


@dataclass(frozen=True)
class Experts:
    """The expert factors of an adapter by module (`...mlp.experts`) and projection, and all its other tensors."""

    layers: dict[str, dict[str, Factors]]
    others: Tensors
    halves: Halves


def read_standard(tensors: Tensors, experts: int, halves: Halves, only: str | None = None) -> Experts:
    """`only` names the projection that a bare name stands for when a single one is adapted."""
    layers: dict[str, dict[str, Factors]] = {}
    others: Tensors = {}
    for name, tensor in tensors.items():
        module, found, _ = name.partition(".lora_A.")
        if not found:
            if ".experts." not in name:
                others[name] = tensor
            continue
        if ".experts" not in module:
            others[name] = tensor
            continue
        b_flat = tensors[name.replace(".lora_A.", ".lora_B.")]
        factors = Factors(
            a=tensor.reshape(experts, -1, tensor.shape[-1]),
            b=b_flat.reshape(b_flat.shape[0], -1, experts).permute(2, 0, 1),
        )
        projection = only or (GATE_UP if module.endswith(".base_layer") else DOWN)
        layers.setdefault(module.removesuffix(".base_layer"), {})[projection] = factors
    return Experts(layers, others, halves)


def _finish(source: Experts, written: Tensors) -> Tensors:
    return {name: tensor.contiguous() for name, tensor in (source.others | written).items()}


RELEASED_PREFIX = f"{PREFIX}language_model.model.layers."
TEXT_PREFIX, WRAPPED_PREFIX = f"{PREFIX}model.layers.", f"{PREFIX}model.language_model.layers."


def other_prefix(source: Experts) -> Tensors:
    """The names of the text model for those of the multimodal one around it, or the other way round."""
    written: Tensors = {}
    for name, tensor in flat(source, swapped=False, expert_major=False).items():
        old, new = (TEXT_PREFIX, WRAPPED_PREFIX) if name.startswith(TEXT_PREFIX) else (WRAPPED_PREFIX, TEXT_PREFIX)
        if not name.startswith(old):
            raise AssertionError(f"{name} is in no layer")
        written[new + name.removeprefix(old)] = tensor
    return written


def released_prefix(source: Experts) -> Tensors:
    """The names of Kimi's release for those of transformers."""
    return {
        name.replace(WRAPPED_PREFIX, RELEASED_PREFIX): tensor
        for name, tensor in flat(source, swapped=False, expert_major=False).items()
    }


def flat(source: Experts, swapped: bool, expert_major: bool) -> Tensors:
    """The standard names, with the in/out swap of older PEFT (2.3) or B columns e*r+k (2.5), or both (2.7)."""
    written: Tensors = {}
    for module, projections in source.layers.items():
        for projection, factors in projections.items():
            a, b = factors.a, factors.b
            if swapped:  # A_std[e] = B[:,:,e]^T and B_std[e] = A[e]^T
                a, b = b.transpose(1, 2), a.transpose(1, 2)
            inner = ".base_layer" if projection == GATE_UP and len(projections) == 2 else ""
            order = (1, 0, 2) if expert_major else (1, 2, 0)
            written[f"{module}{inner}.lora_A.weight"] = a.reshape(-1, a.shape[-1])
            written[f"{module}{inner}.lora_B.weight"] = b.permute(order).reshape(b.shape[1], -1)
    return _finish(source, written)


def _parts(source: Experts, projections: dict[str, Factors]) -> Iterable[tuple[str, Factors]]:
    """gate, up and down apart; a half whose B is zero everywhere was never trained and is left out."""
    if GATE_UP in projections:
        for name, up in (("gate", False), ("up", True)):
            part = source.halves.part(projections[GATE_UP], up)
            if part.b.any():
                yield name, part
    if DOWN in projections:
        yield "down", projections[DOWN]


LINEAR_LEAVES = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
W_LEAVES = {"gate": "w1", "up": "w3", "down": "w2"}


def per_expert(
    source: Experts,
    leaves: dict[str, str],
    rename: Callable[[str], str] = lambda module: module,
    rank_of: Callable[[int], int] | None = None,
) -> Tensors:
    """One Linear per expert and projection (2.1). Expert e keeps its first `rank_of(e)` ranks; 0 drops it."""
    written: Tensors = {}
    for module, projections in source.layers.items():
        for part_name, part in _parts(source, projections):
            for e in range(part.a.shape[0]):
                rank = part.a.shape[1] if rank_of is None else rank_of(e)
                if part.b[e, :, rank:].any():
                    raise AssertionError(f"{module}: expert {e} would lose ranks")
                if rank:
                    name = f"{rename(module)}.{e}.{leaves[part_name]}"
                    written[f"{name}.lora_A.weight"] = part.a[e, :rank]
                    written[f"{name}.lora_B.weight"] = part.b[e, :, :rank]
    return _finish(source, written)


def unsloth_linears(source: Experts) -> Tensors:
    """gpt-oss in Unsloth's 4-bit form (2.5): per-expert Linears, gate_up still fused and interleaved."""
    written: Tensors = {}
    leaves = {GATE_UP: "gate_up_projs", DOWN: "down_projs"}
    for module, projections in source.layers.items():
        for projection, factors in projections.items():
            for e in range(factors.a.shape[0]):
                name = f"{module}.{leaves[projection]}.{e}"
                written[f"{name}.lora_A.weight"] = factors.a[e]
                written[f"{name}.lora_B.weight"] = factors.b[e]
    return _finish(source, written)


def _shared(stack: torch.Tensor) -> torch.Tensor:
    """[E,..] whose experts are all alike, as [1,..]."""
    if not torch.equal(stack, stack[:1].expand_as(stack)):
        raise AssertionError("the outer side differs between experts")
    return stack[:1]


def tinker(source: Experts, rename: Callable[[str], str] = lambda name: name) -> Tensors:
    """Shared outer, 3-D (2.6): w1 and w3 have A [1,r,H] and B [E,I,r], w2 has A [E,r,I] and B [1,H,r]."""
    written: Tensors = {}
    for module, projections in source.layers.items():
        for part_name, part in _parts(source, projections):
            down = part_name == "down"
            name = f"{module}.{W_LEAVES[part_name]}"
            written[f"{name}.lora_A.weight"] = part.a if down else _shared(part.a)
            written[f"{name}.lora_B.weight"] = _shared(part.b) if down else part.b
    # PEFT's copy of an adapted head is no part of this convention.
    kept = {name: t for name, t in _finish(source, written).items() if not name.endswith(".base_layer.weight")}
    return {rename(name): tensor for name, tensor in kept.items()}


def sglang_split(source: Experts) -> Tensors:
    """Shared outer (2.6): the shared side once under `experts.<proj>`, the other side per expert."""
    written: Tensors = {}
    for module, projections in source.layers.items():
        for part_name, part in _parts(source, projections):
            leaf = LINEAR_LEAVES[part_name]
            shared_side, own_side = ("lora_B", "lora_A") if part_name == "down" else ("lora_A", "lora_B")
            sides = {"lora_A": part.a, "lora_B": part.b}
            written[f"{module}.{leaf}.{shared_side}.weight"] = _shared(sides[shared_side])
            for e in range(part.a.shape[0]):
                written[f"{module}.{e}.{leaf}.{own_side}.weight"] = sides[own_side][e]
    return _finish(source, written)


def sglang_fused(source: Experts) -> Tensors:
    """Shared outer (2.6) with one 3-D gate_up leaf: A [1,2r,H] is gate's ranks then up's, B [E,2I,r]."""
    written: Tensors = {}
    for module, projections in source.layers.items():
        parts = dict(_parts(source, projections))
        gate, up, down = parts["gate"], parts["up"], parts["down"]
        written[f"{module}.gate_up_proj.lora_A.weight"] = _shared(torch.cat([gate.a, up.a], dim=1))
        written[f"{module}.gate_up_proj.lora_B.weight"] = torch.cat([gate.b, up.b], dim=1)
        written[f"{module}.down_proj.lora_A.weight"] = down.a
        written[f"{module}.down_proj.lora_B.weight"] = _shared(down.b)
    return _finish(source, written)
