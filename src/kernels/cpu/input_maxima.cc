#include "kernels/cpu/input_maxima.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/function_ref.h"
#include "base/system/thread_pool.h"

namespace motley::kernels::cpu {
namespace {

// Bits of magnitudes are in the order of the magnitudes, and those of NaNs are above all others.
float largest_of(const float* x, std::int64_t count) {
  constexpr std::uint32_t infinity = 0x7F800000;
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(x[i]) & 0x7FFFFFFFU;
    largest = std::max(largest, magnitude > infinity ? 0 : magnitude);
  }
  return std::bit_cast<float>(largest);
}
float largest_of(const bf16* x, std::int64_t count) {
  constexpr std::uint16_t infinity = 0x7F80;
  std::uint16_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto magnitude = static_cast<std::uint16_t>(x[i].bits & 0x7FFFU);
    largest = std::max(largest, magnitude > infinity ? std::uint16_t{0} : magnitude);
  }
  return bf16{largest}.to_float();
}

template <class X>
void row_maxima(const FindInputMaxima& p, const X* x, float* out) {
  if (p.rounding.scales == InputRounding::Scales::row) {
    out[0] = largest_of(x, p.width);
    return;
  }
  const std::int64_t columns = p.rounding.columns;
  for (std::int64_t scale = 0; scale < p.scales; ++scale) {
    const std::int64_t begin = (scale - p.first) * columns - p.rounding.first;
    const std::int64_t from = std::max<std::int64_t>(begin, 0);
    const std::int64_t end = std::min(begin + columns, p.width);
    out[scale] = from < end ? largest_of(x + from, end - from) : 0;
  }
}

void row_maxima(const FindInputMaxima& p, std::int64_t row) {
  float* const out = p.out + row * p.scales;
  const std::int64_t from = p.x_rows != nullptr ? p.x_rows[row] : row;
  if (p.x_count != nullptr && from >= *p.x_count) {
    std::fill_n(out, p.scales, 0.0F);
    return;
  }
  if (p.x_type == DType::f32)
    row_maxima(p, static_cast<const float*>(p.x) + from * p.x_stride, out);
  else
    row_maxima(p, static_cast<const bf16*>(p.x) + from * p.x_stride, out);
}

}  // namespace

void input_maxima(const FindInputMaxima& p, StreamHandle stream) {
  const auto rows = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) row_maxima(p, row);
  };
  auto* const pool = static_cast<ThreadPool*>(stream.native);
  if (pool == nullptr || p.rows <= 0) return rows(0, p.rows);
  constexpr std::int64_t numbers_a_range = 8192;
  pool->for_ranges(p.rows, numbers_a_range / std::max<std::int64_t>(p.width, 1) + 1, rows);
}

}  // namespace motley::kernels::cpu
