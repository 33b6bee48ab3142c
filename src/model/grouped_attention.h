#pragma once

#include "model/config.h"
#include "model/linear.h"

namespace motley::model {

// Grouped-query attention: queries of several heads share a key and value head.
struct GroupedAttention {
  Linear q, k, v, o;
  tensor::Buffer qkv_memory;  // of load_linears
  QkNorm qk_norm = QkNorm::none;
  Norm q_norm, k_norm;
  float clip = 0;  // 0: none
  Vector sinks;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t window = 0;
  float scale = 0;
  bool rope_interleaved = false;
};

Result<GroupedAttention> load_grouped_attention(WeightSource& source, const Config& config,
                                                std::int32_t layer);

CacheLayout cache_layout(const GroupedAttention& block);
std::size_t scratch_bytes(const GroupedAttention& block, std::int64_t rows);

// entry.x [R, hidden] -> out [R, hidden], with what leads into the block; out may be entry.addend.
// `next`, with out as its addend, leads into the block behind: it may be made in place of out.
void apply(const GroupedAttention& block, const Step& step, const LayerPages& pages,
           const NormedSum& entry, const tensor::Tensor& out, NormedSum& next);

}  // namespace motley::model
