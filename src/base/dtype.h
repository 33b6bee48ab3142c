#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace motley {

// Element types as files name them. Those marked "carried only" can be read, sized and written, but
// have no arithmetic.
enum class DType : std::uint8_t {
  f64,  // carried only
  f32,
  f16,
  bf16,
  f8_e4m3,
  f8_e5m2,
  f8_e8m0,
  f4,  // e2m1, two to a byte
  i64,
  i32,
  i16,
  i8,
  u64,  // carried only
  u32,  // carried only
  u16,  // carried only
  u8,
  boolean,
};

inline constexpr int dtype_count = 17;

// The name in safetensors: "F32", "BF16", "F8_E4M3", "BOOL", ...
std::string_view name(DType dtype);

std::optional<DType> dtype_from_name(std::string_view name);

// 4 for f4, else a multiple of 8.
int bits(DType dtype);

// The bytes of this many elements; nothing if they overflow 63 bits or end inside a byte.
std::optional<std::int64_t> bytes_of(DType dtype, std::int64_t elements);

}  // namespace motley
