#pragma once

#include "model/weights/vector.h"
#include "ops/rope.h"

namespace motley::model {

// What a step computes the cos and sin of its rows' positions from. Layers that rotate alike share
// one.
struct RopeTable {
  ops::RopeSpec spec;
  Vector frequencies;
  float attention_factor = 1;

  static Result<RopeTable> create(const ops::RopeSpec& spec, tensor::Device& device,
                                  quant::Uploader* uploader) {
    const ops::RopeFrequencies made = ops::rope_frequencies(spec);
    RopeTable table{.spec = spec, .attention_factor = made.attention_factor};
    MOTLEY_TRY(table.frequencies, Vector::create(made.inverse_frequencies, device, uploader));
    return table;
  }
};

}  // namespace motley::model
