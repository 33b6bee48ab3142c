#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/check.h"
#include "base/result.h"
#include "kernels/elementary.h"
#include "kernels/kernel.h"
#include "lora/apply/apply.h"
#include "lora/apply/batch.h"
#include "lora/pages/format.h"
#include "moe/experts.h"
#include "moe/problem.h"
#include "ops/context.h"
#include "quant/upload.h"
#include "tensor/device/device.h"
#include "tensor/tensor.h"

namespace motley::moe {

using kernels::Support;

// One layer's experts in a backend's layout, in the memory of its device. Immutable.
class PreparedExperts {
 public:
  // The weights must outlive it.
  explicit PreparedExperts(const ExpertWeights& weights) : weights_(&weights) {}
  PreparedExperts(const PreparedExperts&) = delete;
  PreparedExperts& operator=(const PreparedExperts&) = delete;
  virtual ~PreparedExperts() = default;

  // As loaded, in host memory.
  const ExpertWeights& weights() const { return *weights_; }

  // What the backend multiplies rows in rank space by. Ranks whose layers have the same can compute
  // gate and up's for each other; nothing: others can't use this one's.
  virtual std::optional<float> rank_row_unit() const { return std::nullopt; }

 private:
  const ExpertWeights* weights_;
};

// The working memory of a backend for one layer at a time; made once, for any step of up to a
// number of tokens.
class Workspace {
 public:
  Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  virtual ~Workspace() = default;

  // Call before the layers of a step, on their stream. labels [tokens] are the rows' labels in all
  // layers, in device memory, and must stay there until the last layer; null: no row has one. Reads
  // nothing that an earlier step left.
  virtual void begin_step(std::int64_t tokens, const std::int32_t* labels, StreamHandle stream) = 0;
};

// Casts to the backend's own type.
template <class Own, class Base>
Own& own(Base& object) {
  auto* const of_backend = dynamic_cast<Own*>(&object);
  MOTLEY_CHECK(of_backend != nullptr, "an object that this backend made");
  return *of_backend;
}

// Bounds of the mixes in a step. All zero: there are never any adapters.
struct DeltaLimits {
  int labels = 0;    // of a step
  int terms = 0;     // adapters of one mix
  int rank = 0;      // of one adapter
  int rank_sum = 0;  // of all adapters of one mix
};

// Checks that a workspace with these limits has memory for a mix; call it before the mix joins a
// step.
Result<void> fits(const lora::Mix& mix, const DeltaLimits& limits);

// One layer's experts for one batch:
//
//   plan: pairs sorted by expert and label
//   gate, up [pairs, I] = x W        f32, plan order
//   seam 1: += the adapters' deltas  lora::add_gate_up
//   += expert biases, activation     -> h [pairs, I], f32 if exact, else rounded to bf16 here
//   down [pairs, H] = h W            f32, plan order
//   seam 2: += the adapters' deltas  lora::add_down
//   += expert bias, x routing weight, summed into the tokens' rows in slot order
//
// A pair without an expert adds nothing; a token whose pairs all have none gets zeros.
struct ExpertCall {
  const PreparedExperts& experts;       // made by the same backend
  tensor::ConstTensor x;                // [T, H], f32 or bf16
  tensor::ConstTensor ids;              // [T, K], i32; ids that are not an expert's name none
  tensor::ConstTensor routing_weights;  // [T, K], f32
  const lora::ExpertDeltas* deltas = nullptr;  // null: no row adapts these experts
  tensor::Tensor out;                          // [T, H], f32; overwritten
  // If not null: computed instead of out; only if sums_into() allows it.
  const kernels::AfterExperts* next = nullptr;
  Workspace& workspace;  // of the same backend; its step has begun
  const ops::Context& context;
};

struct ExpertKernel;
using ExpertKernelFunction = void (*)(const ExpertCall&, const ExpertKernel&);

// A way to compute a layer in a backend's layout, as a value.
struct ExpertKernel {
  kernels::KernelInfo info;
  ExpertKernelFunction run = nullptr;
  // Null: it supports every call of the backend.
  Support (*supports)(const ExpertCall&, const ExpertKernel&) = nullptr;
  // Whether run() supports call.next. Null: never.
  bool (*sums_into)(const ExpertCall&, const ExpertKernel&) = nullptr;
  int number = 0;  // index among the backend's kernels
};

// Owns a layout of experts, and offers the kernels that read it. Backends are stateless.
//
// Within a backend the bits of an output row depend only on its own row of x, its own ids, routing
// weights and mix, and the weights; not on other rows, threads or other rows' adapters. So for a
// given number of rows all its kernels have the same arithmetic.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;
  virtual tensor::DeviceKind device() const = 0;
  virtual Support supports(const Problem& problem) const = 0;
  // The layout that adapter memory must use for expert factors.
  virtual lora::Layout factor_layout() const = 0;

  // Called once at load, for weights of a problem that it supports. On the CPU they are read in
  // place, and the uploader may be null; elsewhere they are valid when it has finished.
  virtual Result<std::unique_ptr<PreparedExperts>> prepare(const ExpertWeights& weights,
                                                           quant::Uploader* uploader) const = 0;
  // Serves every layer with the problem's sizes, in any format.
  virtual Result<std::unique_ptr<Workspace>> make_workspace(const Problem& problem,
                                                            std::int64_t max_tokens,
                                                            const DeltaLimits& limits,
                                                            tensor::Device& device) const = 0;
  // Scratch that its kernels take from the context for a batch of this many tokens; deltas need
  // theirs in addition.
  virtual std::size_t scratch_bytes(const Problem& problem, std::int64_t tokens) const = 0;

  virtual std::span<const ExpertKernel> kernels() const = 0;
  // The kernel for a call: a function of its shapes and of measured thresholds.
  virtual const ExpertKernel& choose(const ExpertCall&) const { return kernels().front(); }
};

void run_experts(const Backend& backend, const ExpertCall& call);
// Whether run_experts() supports call.next.
bool sums_into(const Backend& backend, const ExpertCall& call);

}  // namespace motley::moe
