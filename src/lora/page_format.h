#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/adapter_tables.h"

// How pages hold an adapter: chosen once for a pool, the same bytes in every arena.
namespace motley::lora {

// Of the factors of experts; those of other sites always lie in rows.
enum class Layout : std::uint8_t {
  rows,    // A [padded, in] and B [out, padded]
  images,  // what tensor cores read from shared memory: images.h
};

struct PageFormat {
  DType dtype = DType::f32;  // of factors: f32, bf16 or f8_e4m3
  Layout experts = Layout::rows;

  friend bool operator==(const PageFormat&, const PageFormat&) = default;

  // Of whole weights that replace the base's, which have no scales.
  DType table_dtype() const { return dtype == DType::f8_e4m3 ? DType::bf16 : dtype; }
  // Factors have a float32 scale for each row, behind the numbers at a multiple of 16 bytes: a
  // power of two, so that a number times its scale is exact in bf16 too.
  bool scaled() const { return dtype == DType::f8_e4m3; }
};

// A rank as pages hold it: zeros behind the true one.
constexpr std::int32_t padded_rank(std::int32_t rank, DType dtype) {
  const std::int32_t unit = dtype == DType::f8_e4m3 ? 16 : 8;
  return (rank + unit - 1) / unit * unit;
}

// An adapter's directory, in its own pages: written with them, unchanged as long as it is pinned.
struct Directory {
  const kernels::SiteEntry* sites = nullptr;             // [site_layers][projection_count]
  const kernels::FactorEntry* expert_factors = nullptr;  // [expert_layers][expert_kinds][experts]
  std::int32_t site_layers = 0;                          // layer -1 comes first
  std::int32_t expert_layers = 0;
  std::int32_t expert_kinds = 0;  // rows: 3 (gate, up, down); images: 2 (gate with up, down)
  std::int32_t experts = 0;
};

}  // namespace motley::lora
