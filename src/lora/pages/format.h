#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

// The format of adapters in memory. Chosen once per pool; the bytes are the same in every arena.
namespace motley::lora {

// The layout of expert factors; factors of other sites are always in rows.
enum class Layout : std::uint8_t {
  rows,    // A [padded, in] and B [out, padded]
  packed,  // as tensor cores read it from shared memory: packed_layout.h
};

struct PageFormat {
  DType dtype = DType::f32;  // of factors: f32, bf16 or f8_e4m3
  Layout experts = Layout::rows;

  friend bool operator==(const PageFormat&, const PageFormat&) = default;

  // The type of whole weights that replace the base's; those have no scales.
  DType table_dtype() const { return dtype == DType::f8_e4m3 ? DType::bf16 : dtype; }
  // Whether factors have a float32 scale for each row, behind the numbers at a multiple of 16
  // bytes. Scales are powers of two, so a number times its scale is exact in bf16.
  bool scaled() const { return dtype == DType::f8_e4m3; }
};

// A rank rounded up as in memory, with zeros behind the true rank.
constexpr std::int32_t padded_rank(std::int32_t rank, DType dtype) {
  const std::int32_t unit = dtype == DType::f8_e4m3 ? 16 : 8;
  return (rank + unit - 1) / unit * unit;
}

// The scales of a factor [rows, columns] in rows: behind its numbers in FP8, else null.
inline const float* row_scales(DType dtype, const void* factor, std::int64_t rows,
                               std::int64_t columns) {
  if (dtype != DType::f8_e4m3) return nullptr;
  const std::int64_t numbers = (rows * columns + 15) / 16 * 16;
  return reinterpret_cast<const float*>(static_cast<const std::byte*>(factor) + numbers);
}

}  // namespace motley::lora
