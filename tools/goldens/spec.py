"""What one folder of the golden set is made from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .methods.scheme import Scheme

VOCAB_SIZE = 131

Tensors = dict[str, torch.Tensor]

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


@dataclass(frozen=True)
class ModelSpec:
    """One folder of the golden set."""

    name: str
    family: str
    config: dict[str, Any]
    dtype: str = "BF16"
    fused: bool = False  # experts stored as 3-D tensors, transformers' names in memory
    max_shard_bytes: int | None = None
    twin: str | None = None  # the model whose weights, prompts and log-probabilities it must share
    attention: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")
    experts: int = 0
    quantised: Scheme | None = None
    norms_add_one: bool = False  # norms multiply by 1 + w, but for the one behind a delta net
    positions: int = 64  # max_position_embeddings
    # The keys around `text_config` of a multimodal release; None: the config is the text model's alone.
    wrapper: dict[str, Any] | None = None
    # Changes to the text model's part of config.json, as it stands in releases; None removes a key.
    config_as_released: dict[str, Any] | None = None
    # All tensors as releases call and lay them, of those that transformers writes.
    as_released: Callable[[Tensors], Tensors] | None = None
    quantised_in_text: bool = False  # the quantization_config stands in the text model's part of config.json
    quantised_apart: bool = False  # experts are quantised one by one, where transformers has them fused
    float32: tuple[str, ...] = ()  # ends of names that are stored in F32 among the others of `dtype`
    exact_float32: bool = False  # with values that `dtype` does not hold
    # Tensors that only lie in the file, and that nothing computes with.
    left_aside: Callable[["ModelSpec"], dict[str, tuple[int, ...]]] | None = None
    long_adapters: tuple[str, ...] | None = None  # with long prompts for these and the base; None: without

    @property
    def seed(self) -> str:
        return self.twin or self.name

    @property
    def tied(self) -> bool:
        """What stands around a text model's config decides for both."""
        return bool((self.config if self.wrapper is None else self.wrapper).get("tie_word_embeddings"))

    @property
    def inner(self) -> int:
        """The width of an expert."""
        return self.config["moe_intermediate_size" if "moe_intermediate_size" in self.config else "intermediate_size"]

    def dtype_of(self, name: str) -> torch.dtype:
        """How a tensor is stored."""
        return torch.float32 if name.endswith(self.float32) else DTYPES[self.dtype]


def is_outside_text(name: str) -> bool:
    """Whether a parameter belongs to what a multimodal model reads pictures with."""
    return any(part in name for part in (".visual.", ".vision_tower.", ".mm_projector."))


def text_name(name: str) -> str:
    """A parameter of a multimodal model by the name that the text model has for it."""
    return name.replace(".language_model.", ".")
