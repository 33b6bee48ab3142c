#pragma once

#include "model/model.h"

// Mixers with states, which no family has yet, over the weights of a golden's attention.
namespace motley::engine_tests {

// Layer 0 is a gated delta net, layer 1 an average of its inputs, and the rest is attention.
Result<std::unique_ptr<model::Mixer>> load_recurrent_mixer(model::WeightSource& source,
                                                           const model::Config& config,
                                                           std::int32_t layer);

}  // namespace motley::engine_tests
