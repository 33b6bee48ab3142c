"""Small floats: E2M1 codes two to a byte, and powers of two as bytes."""

import torch

# The magnitudes of E2M1, and what lies halfway between two neighbours.
E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
_HALFWAY = (E2M1[1:] + E2M1[:-1]) / 2
E2M1_MAX = 6.0
E4M3_MAX = 448.0


def e2m1_codes(values: torch.Tensor) -> torch.Tensor:
    """The nearest code of each value; 8 is the sign."""
    magnitude = torch.bucketize(values.abs(), _HALFWAY)
    return (magnitude + 8 * torch.signbit(values)).to(torch.uint8)


def pack_e2m1(codes: torch.Tensor) -> torch.Tensor:
    """[..., 2n] codes as [..., n] bytes, the even one in the low half."""
    return codes[..., 0::2] | codes[..., 1::2] << 4


def unpack_e2m1(pairs: torch.Tensor) -> torch.Tensor:
    """[..., n] bytes as [..., 2n] float32 values, the low half first."""
    codes = torch.stack((pairs & 15, pairs >> 4), dim=-1).flatten(-2).long()
    return E2M1[codes & 7] * torch.where(codes < 8, 1.0, -1.0)


def e8m0(exponents: torch.Tensor) -> torch.Tensor:
    """Powers of two as bytes with a bias of 127."""
    return (exponents + 127).to(torch.uint8)


def power(bytes_: torch.Tensor) -> torch.Tensor:
    return torch.ldexp(torch.ones(bytes_.shape), bytes_.to(torch.int32) - 127)


def exponent_of(largest: torch.Tensor, emax: int) -> torch.Tensor:
    """The exponent of a block's scale: that of its largest magnitude, less the type's own."""
    return torch.floor(torch.log2(largest)) - emax


def to_e4m3(values: torch.Tensor) -> torch.Tensor:
    return values.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)
