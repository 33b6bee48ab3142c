"""Recipes: what a checkpoint or an adapter holds, as data that the C++ writer follows without knowing any family."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from . import values

# As unsigned integers, as torch reads those, and as what it reads them.
_TYPES = {
    "BF16": (np.uint16, np.int16, torch.bfloat16),
    "F16": (np.uint16, np.int16, torch.float16),
    "F32": (np.uint32, np.int32, torch.float32),
    "F8_E4M3": (np.uint8, np.uint8, torch.float8_e4m3fn),
    "I8": (np.uint8, np.int8, torch.int8),
    "U8": (np.uint8, np.uint8, torch.uint8),
    "I32": (np.uint32, np.int32, torch.int32),
    "I64": (np.uint64, np.int64, torch.int64),
}


@dataclass(frozen=True)
class Recipe:
    """Tensors of one shape and kind. Each `{}` of the name runs through its range, the last one fastest."""

    name: str
    dtype: str  # as safetensors names it
    shape: tuple[int, ...]
    ranges: tuple[tuple[int, int], ...] = ()  # [first, last)
    # What it holds, one of four: packed codes of 4 or 8 bits (I32, U8); the group of each column, groups of so many in
    # an order of their own (I32); numbers, over and over (I32, I64); else (sum + offset) * scale.
    codes: int = 0
    group: int = 0
    numbers: tuple[int, ...] = ()
    offset: int = 0
    scale: float = 0.0
    # Of a quantised weight: the module, with the same gaps as the name, and what the format calls this tensor.
    module: str = ""
    part: str = ""

    def _filled_in(self, text: str) -> Iterator[str]:
        for indices in itertools.product(*(range(first, last) for first, last in self.ranges)):
            yield text.format(*indices)

    def names(self) -> Iterator[str]:
        return self._filled_in(self.name)

    def modules(self) -> Iterator[str]:
        return self._filled_in(self.module)

    def elements(self, seed: str, name: str) -> np.ndarray:
        """Of one of the tensors, as unsigned integers of their width."""
        key, count, unsigned = values.key(f"{seed}/{name}"), math.prod(self.shape), _TYPES[self.dtype][0]
        if self.numbers:
            return np.resize(np.array(self.numbers, np.int64), count).astype(unsigned)
        if self.group:
            return values.groups(key, count, self.group).astype(unsigned)
        if self.codes:
            return values.packed(key, count, self.codes, unsigned)
        if self.dtype == "BF16":
            return values.bf16(key, count, self.offset, self.scale)
        if self.dtype == "F32":
            return values.f32(key, count, self.offset, self.scale).view(unsigned)
        products = values.products(key, count, self.offset, self.scale)
        if self.dtype == "F16":
            return products.astype(np.float16).view(unsigned)
        if self.dtype in ("I8", "U8"):
            lowest, highest = (-128, 127) if self.dtype == "I8" else (0, 255)
            return np.rint(products).clip(lowest, highest).astype(np.int16).astype(unsigned)
        narrow = torch.from_numpy(products).clamp(-448, 448)
        return narrow.to(torch.float8_e4m3fn).view(torch.uint8).numpy()

    def tensor(self, seed: str, name: str) -> torch.Tensor:
        _, integer, dtype = _TYPES[self.dtype]
        return torch.from_numpy(self.elements(seed, name).view(integer)).view(dtype).view(self.shape)

    def place(self) -> dict[str, Any]:
        """Names, types and shapes."""
        place: dict[str, Any] = {"name": self.name, "dtype": self.dtype, "shape": list(self.shape)}
        return place | ({"ranges": [list(r) for r in self.ranges]} if self.ranges else {})

    def record(self, seed: str) -> dict[str, Any]:
        """With the checksums of the first and the last tensor, as text: JSON's integers are signed."""
        record = self.place()
        if self.part:
            record["part"] = True
        if self.numbers:
            return record | {"numbers": list(self.numbers)}
        if self.group:
            record["group"] = self.group
        elif self.codes:
            record["codes"] = self.codes
        else:
            record |= {"offset": self.offset, "scale": self.scale}
        names = list(self.names())
        return record | {"checksums": [str(values.checksum(self.elements(seed, n))) for n in (names[0], names[-1])]}


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
    return Recipe(name, dtype, tuple(shape), tuple(ranges), offset=offset, scale=scale)
