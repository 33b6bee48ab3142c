"""What one folder of the golden set is made from."""

from dataclasses import dataclass
from typing import Any

import torch

from .methods.scheme import Scheme

VOCAB_SIZE = 131

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

    @property
    def seed(self) -> str:
        return self.twin or self.name
