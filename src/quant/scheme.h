#pragma once

#include <cstdint>

#include "quant/weight.h"

namespace motley::quant {

// How a checkpoint's tensors hold a quantised weight. Each has a reader in readers/.
enum class Layout : std::uint8_t {
  scaled,   // weight (FP8 or INT8) with its scales beside it
  packed,   // compressed-tensors' weight_packed: integers of 1 to 8 bits in words
  fp4,      // 4-bit floats, two to a byte
  gptq,     // qweight [in / 8, out]: words along the inputs
  gptq_v2,  // the same, zero points as they are
  awq,      // qweight [in, out / 8]: words along the outputs, in an order of their own
};

// What a checkpoint says of a module's weight. The type of its scales is what the file has.
struct Scheme {
  Layout layout = Layout::scaled;
  Format format = {};
  int stored_bits = 8;  // of the file's integers; 2 and 3 bits become 4, 5 to 7 become 8

  friend bool operator==(const Scheme&, const Scheme&) = default;
};

}  // namespace motley::quant
