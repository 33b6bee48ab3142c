#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "lora/apply.h"
#include "moe/experts.h"
#include "moe/problem.h"
#include "ops/context.h"
#include "plan/plan.h"
#include "tensor/tensor.h"

namespace motley::moe {

// One layer's experts for one batch:
//
//   gate, up [pairs, I] = x W        f32, plan order
//   seam 1: += the adapters' deltas  lora::add_gate_up
//   += expert biases, activation     -> h [pairs, I], f32 if exact, else rounded to bf16 here
//   down [pairs, H] = h W            f32, plan order
//   seam 2: += the adapters' deltas  lora::add_down
//   += expert bias, x routing weight, summed into the tokens' rows in slot order
//
// A pair without an expert adds nothing; a token whose pairs all have none gets zeros.
struct ExpertCall {
  const ExpertWeights& weights;
  tensor::ConstTensor x;  // [T, H], f32 or bf16
  const plan::Plan& plan;
  tensor::ConstTensor routing_weights;         // [T, K], f32
  const lora::ExpertDeltas* deltas = nullptr;  // null: nobody here adapts these experts
  tensor::Tensor out;                          // [T, H], f32; overwritten
  const ops::Context& context;
};

// Yes, or why not.
class Support {
 public:
  static Support yes() { return Support(std::nullopt); }
  static Support no(std::string reason) { return Support(std::move(reason)); }

  explicit operator bool() const { return !reason_.has_value(); }
  // Of a no.
  const std::string& reason() const { return *reason_; }

 private:
  explicit Support(std::optional<std::string> reason) : reason_(std::move(reason)) {}

  std::optional<std::string> reason_;
};

// The base maths of experts. Backends have no state of their own.
//
// Within a backend an output row's bits depend on its own row of x, its own ids, routing weights
// and mix, and the weights alone: never on other rows, on threads, or on whether others adapt.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;
  virtual Support supports(const Problem& problem) const = 0;
  // Scratch that run() takes from the context for a batch of that many tokens; the seams take
  // theirs on top.
  virtual std::size_t scratch_bytes(const Problem& problem, std::int64_t tokens) const = 0;
  virtual void run(const ExpertCall& call) const = 0;
};

// Aborts where a call's shapes or types do not fit each other.
void check(const ExpertCall& call);

}  // namespace motley::moe
