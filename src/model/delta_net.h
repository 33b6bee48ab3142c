#pragma once

#include <vector>

#include "model/block.h"
#include "model/config/config.h"

namespace motley::model {

// A gated delta net: queries, keys and values go through a short convolution and a recurrence over
// a state of fixed size; a gate weighs what comes out.
struct DeltaNet final : Mixer {
  // qkv, z, b and a; of files that store them by key head qkvz and ba.
  std::vector<Linear> in;
  tensor::Buffer in_memory;  // of load_linears
  Linear out;
  Vector filter;   // [channels, taps]
  Vector no_bias;  // of the convolution
  Vector decay;    // [value heads]: -e^A_log
  Vector decay_bias;
  // Make queries and keys as long as the recurrence takes them.
  Norm query_norm, key_norm;
  Norm out_norm;         // of each head's result
  DeltaNetConfig sizes;  // with this rank's heads, of which there may be none

  std::vector<MapGroup> maps() const override;
  std::vector<const Vector*> vectors() const override;
  TokenCaches kept_per_token() const override { return {}; }
  StateShape kept_per_sequence() const override;
  kernels::AttentionShape attention_shape(std::int64_t) const override { return {}; }
  Cost cost(const EqualSequences& step) const override;
  ValueId append(ValueId x, Builder& pass) const override;

 private:
  struct Projected {
    ValueId qkv = ops::no_value;                   // [channels]: all queries, all keys, all values
    ValueId z = ops::no_value;                     // [values]
    ValueId b = ops::no_value, a = ops::no_value;  // [value heads]
  };
  Projected append_projections(ValueId x, Builder& pass) const;
  // Of results that stand by key head.
  Projected append_sorted(ValueId qkvz, ValueId ba, Builder& pass) const;
  ValueId append_recurrence(const Projected& of, Builder& pass) const;
};

Result<DeltaNet> load_attention(WeightSource& source, const Config& config,
                                const DeltaNetConfig& sizes, std::int32_t layer);

}  // namespace motley::model
