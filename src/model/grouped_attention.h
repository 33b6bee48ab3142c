#pragma once

#include "model/block.h"
#include "model/config/config.h"

namespace motley::model {

// Grouped-query attention: queries of several heads share a key and value head.
struct GroupedAttention final : Mixer {
  Linear q, k, v, o;          // v: where values are projected
  tensor::Buffer qkv_memory;  // of load_linears
  Norm q_norm, k_norm, v_norm;
  Vector sinks;
  std::int64_t heads = 0;  // of this rank, which may have none
  std::int64_t kv_heads = 0;
  bool first_of_kv = true;  // dist::HeadShard's
  GroupedConfig sizes;      // with the heads of all ranks

  std::vector<MapGroup> maps() const override;
  std::vector<const Vector*> vectors() const override;
  TokenCaches kept_per_token() const override;
  StateShape kept_per_sequence() const override { return {}; }
  kernels::AttentionShape attention_shape(std::int64_t sequences) const override;
  Cost cost(const EqualSequences& step) const override;
  ValueId append(ValueId x, Builder& pass) const override;

 private:
  // No v: values are stored already, or are the keys.
  struct Heads {
    ValueId q = ops::no_value, k = ops::no_value, v = ops::no_value;
    ValueId gates = ops::no_value;
  };
  Heads append_projections(ValueId x, Builder& pass) const;
  // Stores values that are what k_proj gives, before that becomes keys.
  void append_values_of(ValueId keys, Builder& pass) const;
  ValueId append_attend(const Heads& by_head, Builder& pass) const;
};

Result<GroupedAttention> load_attention(WeightSource& source, const Config& config,
                                        const GroupedConfig& sizes, std::int32_t layer);

}  // namespace motley::model
