"""Numbers that follow from a key and an index alone, the same in tests/wide/values.cc bit for bit.

Word i of a tensor is the i-th output of splitmix64 that starts at the tensor's key. The sum of its four 16-bit fields,
less its mean, is close to normal. An element is (sum + offset) * scale, one product in float32, rounded to bfloat16.
"""

import numpy as np

# Of a sum of four uniform 16-bit fields.
MEAN = 2 * 65535
DEVIATION = (4 * (65536**2 - 1) / 12) ** 0.5

_CHUNK = 1 << 16
_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def key(text: str) -> int:
    """FNV-1a of 64 bits."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def words(tensor_key: int, first: int, count: int) -> np.ndarray:
    with np.errstate(over="ignore"):
        z = np.arange(first + 1, first + count + 1, dtype=np.uint64) * _GAMMA + np.uint64(tensor_key)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def _sums(word: np.ndarray) -> np.ndarray:
    fields = word.view(np.uint16).reshape(-1, 4)
    total = fields[:, 0].astype(np.int32)
    for i in range(1, 4):
        total += fields[:, i]
    return total - MEAN


def _products(tensor_key: int, count: int, offset: int, scale: float) -> np.ndarray:
    values = np.empty(count, np.float32)
    for first in range(0, count, _CHUNK):
        end = min(first + _CHUNK, count)
        sums = _sums(words(tensor_key, first, end - first))
        np.multiply((sums + offset).astype(np.float32), np.float32(scale), out=values[first:end])
    return values


def bf16(tensor_key: int, count: int, offset: int, scale: float) -> np.ndarray:
    """The upper halves of the float32 numbers, nearest, ties to even."""
    bits = _products(tensor_key, count, offset, scale).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


def f32(tensor_key: int, count: int, offset: int, scale: float) -> np.ndarray:
    """The same numbers as float32."""
    return (bf16(tensor_key, count, offset, scale).astype(np.uint32) << np.uint32(16)).view(np.float32)


def products(tensor_key: int, count: int, offset: int, scale: float) -> np.ndarray:
    """Before any rounding to bfloat16: for types that are narrower."""
    return _products(tensor_key, count, offset, scale)


def packed(tensor_key: int, count: int, bits: int, unsigned: type[np.unsignedinteger]) -> np.ndarray:
    """Codes as many as an element holds, the first lowest. One of 8 bits is a byte of the word. One of 4 bits is a byte
    scaled to 0 to 16, and 15 where that is 16.

    Their mean is near the middle, which stands for zero: with a mean beside it the sums of all columns would add up.
    """
    elements = np.zeros(count, unsigned)
    for first in range(0, count, _CHUNK):
        end = min(first + _CHUNK, count)
        octets = words(tensor_key, first, end - first).view(np.uint8).reshape(-1, 8)
        for i in range(8 * elements.itemsize // bits):
            octet = octets[:, i].astype(np.uint32)
            code = np.minimum((octet * 16 + 128) >> 8, 15) if bits == 4 else octet
            elements[first:end] |= (code << (bits * i)).astype(unsigned)
    return elements


def groups(tensor_key: int, columns: int, group: int) -> np.ndarray:
    """The group of each column. Groups take columns in the order of their words."""
    order = np.argsort(words(tensor_key, 0, columns))
    result = np.empty(columns, np.int64)
    result[order] = np.arange(columns) // group
    return result


def checksum(codes: np.ndarray) -> int:
    """Of a tensor's elements as unsigned integers: every one counts, with its place."""
    total = 0
    with np.errstate(over="ignore"):
        for first in range(0, codes.size, _CHUNK):
            part = codes[first : first + _CHUNK].astype(np.uint64)
            places = np.arange(first, first + part.size, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
            total += int((part * places).sum(dtype=np.uint64))
    return total % 2**64
