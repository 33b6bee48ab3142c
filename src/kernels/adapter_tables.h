#pragma once

#include <cstdint>

// The tables in which kernels find adapters. Pointers are to device memory.
namespace motley::kernels {

// A pair of factors. Rank 0: absent. In FP8 a float32 scale for each row follows the numbers, at
// the next multiple of 16 bytes.
struct FactorEntry {
  const void* a = nullptr;
  const void* b = nullptr;
  std::int32_t rank = 0;  // row layout: the true rank; packed layout: columns in rank space
  // row layout: the padded rank; packed layout: columns below it have scale[0]
  std::int32_t split = 0;
  float scale[2] = {0, 0};
};
static_assert(sizeof(FactorEntry) == 32);

// What an adapter has at a site outside of experts.
struct SiteEntry {
  FactorEntry factor;
  const float* lora_bias = nullptr;
  const float* gain = nullptr;
  const void* replaced = nullptr;
  const float* replaced_bias = nullptr;
};
static_assert(sizeof(SiteEntry) == 64);

// One adapter of a mix, for all layers. Layers not below its count have no factors.
struct AdapterTerm {
  const SiteEntry* sites = nullptr;             // [site_layers][projections]; layer -1 comes first
  const FactorEntry* expert_factors = nullptr;  // [expert_layers][kinds][experts]
  std::int32_t site_layers = 0;
  std::int32_t expert_layers = 0;
  std::int32_t experts = 0;
  float scale = 0;  // of the request: multiplies that of the factors
};
static_assert(sizeof(AdapterTerm) == 32);

}  // namespace motley::kernels
