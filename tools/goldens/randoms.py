"""Random values that depend on a written key only, never on the order in which they are drawn."""

import hashlib
from collections.abc import Sequence

import numpy as np
import torch


def generator(key: str) -> np.random.Generator:
    """Philox on a hash of `key`: numpy computes it in scalar float64, so every CPU gives the same bits."""
    digest = hashlib.sha256(key.encode()).digest()
    return np.random.Generator(np.random.Philox(int.from_bytes(digest[:16], "little")))


def normal(key: str, shape: Sequence[int], std: float, dtype: torch.dtype, mean: float = 0.0) -> torch.Tensor:
    """Normal values as float32, rounded so that `dtype` holds them exactly."""
    return _rounded(generator(key).standard_normal(tuple(shape)) * std + mean, dtype)


def uniform(key: str, shape: Sequence[int], low: float, high: float, dtype: torch.dtype) -> torch.Tensor:
    """Uniform values as float32, rounded so that `dtype` holds them exactly."""
    return _rounded(generator(key).uniform(low, high, tuple(shape)), dtype)


def _rounded(values: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.float32)).to(dtype).to(torch.float32)


def token_ids(key: str, vocab_size: int, count: int) -> list[int]:
    return generator(key).integers(0, vocab_size, count).tolist()
