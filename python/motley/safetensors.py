"""Tensors of numpy or torch as the bytes of a safetensors file. Neither library is imported here."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Mapping
from typing import Any

NAMES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}
HEADER_ALIGNMENT = 8


def is_torch(tensor: Any) -> bool:
    torch = sys.modules.get("torch")  # there if the caller has a tensor of it
    return torch is not None and isinstance(tensor, torch.Tensor)


def type_name(name: str, tensor: Any) -> str:
    """As safetensors calls the type of its numbers."""
    dtype = getattr(tensor, "dtype", type(tensor).__name__)
    known = NAMES.get(getattr(dtype, "name", str(dtype).removeprefix("torch.")))
    if known is None:
        raise TypeError(f"tensor {name}: {dtype} can't be sent: give an array of numpy or a tensor of torch, of "
                        f"{', '.join(NAMES)}")
    return known


def tensor_bytes(tensor: Any) -> memoryview:
    """Its numbers in order, little-endian; without a copy where they lie so in the host's memory."""
    if is_torch(tensor):
        tensor = tensor.detach().cpu().contiguous()
        size = tensor.numel() * tensor.element_size()
        if size == 0:
            return memoryview(b"")
        numbers = (ctypes.c_char * size).from_address(tensor.data_ptr())
        numbers.tensor = tensor  # which owns the memory
        return memoryview(numbers).cast("B")
    order = tensor.dtype.byteorder
    if order == ">" or (order == "=" and sys.byteorder == "big"):
        tensor = tensor.astype(tensor.dtype.newbyteorder("<"))
    if tensor.size == 0:
        return memoryview(b"")
    data: memoryview = tensor.ravel().view("uint8").data
    return data


def safetensors(tensors: Mapping[str, Any], metadata: Mapping[str, str]) -> list[bytes | memoryview]:
    """The header, and then each tensor's bytes: one after the other they are the file."""
    types = {name: type_name(name, tensor) for name, tensor in tensors.items()}
    parts = {name: tensor_bytes(tensor) for name, tensor in tensors.items()}
    # The widest first, so that each begins at a multiple of its width.
    names = sorted(tensors, key=lambda name: (-parts[name].nbytes // max(count(tensors[name]), 1), name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    offset = 0
    for name in names:
        end = offset + parts[name].nbytes
        header[name] = {"dtype": types[name], "shape": list(tensors[name].shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % HEADER_ALIGNMENT)
    return [len(text).to_bytes(8, "little") + text, *(parts[name] for name in names if parts[name].nbytes)]


def count(tensor: Any) -> int:
    product = 1
    for size in tensor.shape:
        product *= size
    return product
