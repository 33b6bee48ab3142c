#pragma once

#include "model/config/config.h"
#include "model/forward/builder.h"
#include "model/linear.h"
#include "model/step.h"

namespace motley::model {

// Grouped-query attention: queries of several heads share a key and value head.
struct GroupedAttention {
  Linear q, k, v, o;
  tensor::Buffer qkv_memory;  // of load_linears
  QkNorm qk_norm = QkNorm::none;
  Norm q_norm, k_norm;
  float clip = 0;  // 0: none
  Vector sinks;
  std::int64_t heads = 0;  // of this rank, which may have none
  std::int64_t kv_heads = 0;
  bool first_of_kv = true;  // dist::HeadShard's
  std::int64_t head_dim = 0;
  std::int64_t window = 0;
  float scale = 0;
  bool rope_interleaved = false;
};

Result<GroupedAttention> load_grouped_attention(WeightSource& source, const Config& config,
                                                std::int32_t layer);

CacheLayout cache_layout(const GroupedAttention& block);
// For the scratch of steps with so many sequences.
kernels::AttentionShape attention_shape(const GroupedAttention& block, std::int64_t sequences);

// x [R, hidden] -> the layer's result [R, hidden].
ValueId append(const GroupedAttention& block, ValueId x, Builder& pass);

}  // namespace motley::model
