#pragma once

#include "model/block.h"
#include "model/config/config.h"

namespace motley::model {

// Grouped-query attention: queries of several heads share a key and value head.
struct GroupedAttention final : Mixer {
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

  std::vector<MapGroup> maps() const override;
  std::vector<const Vector*> vectors() const override;
  CacheLayout kept_per_token() const override;
  StateShape kept_per_sequence() const override { return {}; }
  kernels::AttentionShape attention_shape(std::int64_t sequences) const override;
  Cost cost(const EqualSequences& step) const override;
  ValueId append(ValueId x, Builder& pass) const override;
};

Result<GroupedAttention> load_grouped_attention(WeightSource& source, const Config& config,
                                                std::int32_t layer);

}  // namespace motley::model
