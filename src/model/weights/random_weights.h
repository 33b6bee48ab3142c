#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/number_types.h"
#include "base/result.h"
#include "quant/weight.h"
#include "tensor/tensor.h"

namespace motley::model {

// Stands in for a checkpoint: any tensor that is asked for is there, in bf16, with random numbers
// that keep hidden states at sound sizes and the choice of experts near even. Where they come from
// is a few blocks that all share; a name decides the place in them. Safe to call from any thread.
//
// Attention over random keys is nearly a mean, so what it gives back is nearly the same for every
// row of a prompt. Added at full size in every layer it would soon be most of a hidden state, and
// all rows would choose the same experts. Its output is therefore small.
class RandomWeights {
 public:
  enum class Experts : std::uint8_t { bf16, w4a16 };

  // Weights of up to `shared_numbers` are places in one piece of memory, for models that take a
  // copy to a device; others have memory of their own, as a model in the host's has.
  RandomWeights(Experts experts, std::int64_t shared_numbers);

  // At most a block, as small tensors are.
  Result<tensor::ConstTensor> tensor(std::string_view name, const tensor::Shape& shape) const;
  std::vector<float> numbers(std::string_view name, std::int64_t count) const;
  // The allocator is the host's.
  Result<quant::Weight> matrix(std::string_view module, quant::TrueSize size,
                               tensor::Allocator& allocator) const;

  // The format of routed experts whose rows have that many inputs.
  static quant::Format expert_format(Experts experts, std::int64_t in);
  Experts experts() const { return experts_; }

 private:
  Result<quant::Weight> place(std::string_view module, const quant::Format& format,
                              quant::TrueSize size, const std::vector<bf16>& block,
                              tensor::Allocator& allocator) const;

  Experts experts_;
  std::int64_t shared_numbers_;
  std::vector<bf16> weights_;     // a standard deviation of 0.02
  std::vector<bf16> embeddings_;  // of 1
  std::vector<bf16> outputs_;     // of 0.002: what attention gives back
  std::vector<bf16> codes_;       // bytes of two codes from 1 to 15, none preferred
};

}  // namespace motley::model
