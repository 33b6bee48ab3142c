"""Unsigned codes of a few bits in words of 32: a stream along the first dimension, the lowest bits of a word first."""

import numpy as np
import torch

WORD = 32


def count(codes: int, bits: int) -> int:
    """How many words hold a stream of so many codes."""
    return -(-codes * bits // WORD)


def pack(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Codes [n, m] as int32 words [count(n, bits), m]."""
    values = codes.numpy().astype(np.uint32)
    stream = (values[:, None, :] >> np.arange(bits, dtype=np.uint32)[:, None] & 1).reshape(-1, values.shape[1])
    padded = np.zeros((count(values.shape[0], bits) * WORD, values.shape[1]), np.uint32)
    padded[: stream.shape[0]] = stream
    lifted = padded.reshape(-1, WORD, values.shape[1]) << np.arange(WORD, dtype=np.uint32)[:, None]
    return torch.from_numpy(np.bitwise_or.reduce(lifted, axis=1).view(np.int32).copy())


def unpack(words: torch.Tensor, bits: int, codes: int) -> torch.Tensor:
    """The first `codes` codes of int32 words [w, m], as int64 [codes, m]."""
    places = torch.arange(codes)[:, None] * bits + torch.arange(bits)
    stream = words.long()[places // WORD] >> (places % WORD)[:, :, None] & 1  # [codes, bits, m]
    return (stream << torch.arange(bits)[None, :, None]).sum(1)
