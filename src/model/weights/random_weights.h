#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/number_types.h"
#include "base/result.h"
#include "quant/weight.h"
#include "tensor/tensor.h"

namespace motley::model {

// Stands in for a checkpoint: every requested tensor exists, with random numbers such that
// hidden states stay at sensible sizes and experts are chosen almost uniformly. Tensors are cut
// from a few shared blocks, at an offset derived from their name. Thread-safe.
//
// Attention over random keys is almost a mean, so its output is almost the same for every row of a
// prompt. At full size it would soon dominate the hidden states, and all rows would choose the same
// experts. Therefore its output is small.
class RandomWeights {
 public:
  // Of experts; fp8_block and w8a8: of all linear maps but the head, with quantised inputs, as such
  // files have it.
  enum class Experts : std::uint8_t {
    bf16,
    w4a16,
    w4a16_asym,
    w4a16_g32,
    w4a16_actorder,
    w8a16,
    w8a16_g32,
    mxfp8,
    fp8_block,
    w8a8,
    mxfp4,
    nvfp4
  };
  static constexpr std::array<std::pair<std::string_view, Experts>, 12> names = {{
      {"bf16", Experts::bf16},
      {"w4a16", Experts::w4a16},
      {"w4a16-asym", Experts::w4a16_asym},
      {"w4a16-g32", Experts::w4a16_g32},
      {"w4a16-actorder", Experts::w4a16_actorder},
      {"w8a16", Experts::w8a16},
      {"w8a16-g32", Experts::w8a16_g32},
      {"mxfp8", Experts::mxfp8},
      {"fp8-block", Experts::fp8_block},
      {"w8a8", Experts::w8a8},
      {"mxfp4", Experts::mxfp4},
      {"nvfp4", Experts::nvfp4},
  }};

  // Weights of up to `shared_numbers` are cut from one block, for models that copy weights to a
  // device; others have memory of their own, as weights of a model in host memory do.
  // `exact_inputs`: none are quantised.
  RandomWeights(Experts experts, std::int64_t shared_numbers, bool exact_inputs);

  // At most as large as a block; for small tensors.
  Result<tensor::ConstTensor> tensor(std::string_view name, const tensor::Shape& shape) const;
  std::vector<float> numbers(std::string_view name, std::int64_t count) const;
  // Whether its matrix has codes and scales.
  bool has_codes(std::string_view module) const;
  // The allocator is the host's.
  Result<quant::Weight> matrix(std::string_view module, quant::TrueSize size,
                               tensor::Allocator& allocator) const;

  // The format of routed experts with rows of this many inputs.
  static quant::Format expert_format(Experts experts, std::int64_t in);
  Experts experts() const { return experts_; }

 private:
  Result<quant::Weight> place(std::string_view module, const quant::Format& format,
                              quant::TrueSize size, const std::vector<bf16>& block,
                              tensor::Allocator& allocator) const;

  Experts experts_;
  std::int64_t shared_numbers_;
  bool exact_inputs_;
  std::vector<bf16> weights_;     // a standard deviation of 0.02
  std::vector<bf16> embeddings_;  // of 1
  std::vector<bf16> outputs_;     // with 0.002: attention's output projection
  std::vector<bf16> codes_;       // bytes of codes, uniform
};

}  // namespace motley::model
