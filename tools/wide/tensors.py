"""Recipes: what a checkpoint or an adapter holds, as data that the C++ writer follows without knowing any family."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from . import values

_CODES = {"BF16": np.uint16, "F32": np.uint32, "F8_E4M3": np.uint8, "I32": np.uint32, "I64": np.uint64}


@dataclass(frozen=True)
class Recipe:
    """Tensors of one shape and kind. Each `{}` of the name runs through its range, the last one fastest."""

    name: str
    dtype: str  # as safetensors names it; I32 holds packed 4-bit codes
    shape: tuple[int, ...]
    ranges: tuple[tuple[int, int], ...] = ()  # [first, last)
    offset: int = 0
    scale: float = 0.0
    numbers: tuple[int, ...] = ()  # of I64: what it holds

    def names(self) -> Iterator[str]:
        for indices in itertools.product(*(range(first, last) for first, last in self.ranges)):
            yield self.name.format(*indices)

    def codes(self, seed: str, name: str) -> np.ndarray:
        """The elements of one of the tensors, as unsigned integers of their width."""
        key, count = values.key(f"{seed}/{name}"), math.prod(self.shape)
        if self.dtype == "I64":
            return np.array(self.numbers, np.uint64)
        if self.dtype == "I32":
            return values.packed4(key, count)
        if self.dtype == "BF16":
            return values.bf16(key, count, self.offset, self.scale)
        if self.dtype == "F32":
            return values.f32(key, count, self.offset, self.scale).view(np.uint32)
        narrow = torch.from_numpy(values.products(key, count, self.offset, self.scale)).clamp(-448, 448)
        return narrow.to(torch.float8_e4m3fn).view(torch.uint8).numpy()

    def tensor(self, seed: str, name: str) -> torch.Tensor:
        types = {
            "BF16": (np.int16, torch.bfloat16),
            "F32": (np.int32, torch.float32),
            "F8_E4M3": (np.uint8, torch.float8_e4m3fn),
            "I32": (np.int32, torch.int32),
            "I64": (np.int64, torch.int64),
        }
        integer, dtype = types[self.dtype]
        return torch.from_numpy(self.codes(seed, name).view(integer)).view(dtype).view(self.shape)

    def record(self, seed: str) -> dict[str, Any]:
        """With the checksums of the first and the last tensor, as text: JSON's integers are signed."""
        record: dict[str, Any] = {"name": self.name, "dtype": self.dtype, "shape": list(self.shape)}
        if self.ranges:
            record["ranges"] = [list(r) for r in self.ranges]
        if self.dtype == "I64":
            return record | {"numbers": list(self.numbers)}
        if self.dtype != "I32":
            record |= {"offset": self.offset, "scale": self.scale}
        names = list(self.names())
        return record | {"checksums": [str(values.checksum(self.codes(seed, n))) for n in (names[0], names[-1])]}


def filled(
    name: str,
    shape: Sequence[int],
    deviation: float,
    mean: float = 0.0,
    dtype: str = "BF16",
    ranges: Iterable[tuple[int, int]] = (),
) -> Recipe:
    scale = float(np.float32(deviation / values.DEVIATION))
    # The sum with its offset must stay below 2^24, where float32 holds every integer.
    offset = round(mean / scale)
    assert abs(offset) + values.MEAN < 2**24
    return Recipe(name, dtype, tuple(shape), tuple(ranges), offset, scale)
