#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lora/apply/batch.h"
#include "lora/pages/pool.h"
#include "moe/conformance/conformance.h"

namespace motley::moe::conformance {

// One adapter of each kind, on layer 0, resident in a pool of the device under test whose free
// pages are NaN. Factors have the same values in every type.
class Adapters {
 public:
  Adapters(const LayerSpec& spec, DType dtype, lora::Layout layout);

  // The adapter whose deltas are zero.
  static constexpr std::size_t zero = 6;

  struct Choice {
    std::size_t adapter;
    float scale;
  };

  lora::Mix mix(const std::vector<Choice>& choices) const;
  std::vector<Term> terms(const std::vector<Choice>& choices) const;
  lora::Pool& pool() const { return *pool_; }

 private:
  std::unique_ptr<lora::Pool> pool_;
  std::vector<lora::Adapter> adapters_;
  std::vector<lora::Handle> handles_;
};

using Choices = std::vector<Adapters::Choice>;

// The base, each adapter alone, and mixes with scales.
const std::vector<Choices>& all_choices();
// Assigns the choices to tokens in a scattered order.
std::vector<Choices> assign_choices(std::int64_t tokens, std::size_t first);

}  // namespace motley::moe::conformance
