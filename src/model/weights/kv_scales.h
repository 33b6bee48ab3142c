#pragma once

#include <cstdint>

#include "base/result.h"

namespace motley::model {

class WeightSource;

// What a layer's keys and values are divided by before they are stored in 8 bits, as the checkpoint
// was calibrated. They are for codes of 8 bits alone.
struct KvScales {
  float key = 1;
  float value = 1;
  bool stored = false;  // the checkpoint has them
};

// Of the names that packers use: self_attn.k_scale (compressed-tensors), self_attn.k_proj.k_scale
// (ModelOpt) or .output_scale (older compressed-tensors), self_attn.kv_scale for both. One that
// stands alone is for both; one that is not positive was not calibrated. Scales by head are left
// out.
Result<KvScales> read_kv_scales(WeightSource& source, std::int32_t layer);

}  // namespace motley::model
