#include "moe/backend.h"

#include <utility>

#include "base/cat.h"
#include "base/check.h"

namespace motley::moe {

Result<void> fits(const lora::Mix& mix, const DeltaLimits& limits) {
  const auto refusal = [](std::string what, const lora::Mix::Part& part) {
    return Error(ErrorCode::invalid_argument, std::move(what),
                 cat("adapter ", quote(part.adapter->name())),
                 "use fewer or smaller adapters on one request, or start with room for them");
  };
  int terms = 0;
  int sum = 0;
  for (const lora::Mix::Part& part : mix.parts()) {
    const int rank = part.adapter->largest_rank();
    sum += rank;
    if (++terms > limits.terms) {
      return refusal(
          cat("more adapters on one request than the ", limits.terms, " there is room for"), part);
    }
    if (rank > limits.rank)
      return refusal(cat("rank ", rank, ", where there is room for ", limits.rank), part);
    if (sum > limits.rank_sum) {
      return refusal(cat("ranks of ", sum, " together on one request, where there is room for ",
                         limits.rank_sum),
                     part);
    }
  }
  return {};
}

namespace {

// Aborts if the shapes or types of a call do not match.
void check(const ExpertCall& call) {
  const std::int64_t hidden = call.experts.weights().hidden;
  const std::int64_t tokens = call.x.dim(0);
  MOTLEY_CHECK(call.x.shape() == (tensor::Shape{tokens, hidden}) && call.x.is_contiguous(),
               "x [T, H]");
  MOTLEY_CHECK(call.x.dtype() == DType::f32 || call.x.dtype() == DType::bf16, "x in f32 or bf16");
  MOTLEY_CHECK(call.ids.shape() == (tensor::Shape{tokens, call.ids.dim(1)}) &&
                   call.ids.dtype() == DType::i32 && call.ids.is_contiguous(),
               "ids [T, K] in i32");
  MOTLEY_CHECK(call.routing_weights.shape() == call.ids.shape() &&
                   call.routing_weights.dtype() == DType::f32 &&
                   call.routing_weights.is_contiguous(),
               "routing weights [T, K] in f32");
  MOTLEY_CHECK(call.out.shape() == (tensor::Shape{tokens, hidden}) &&
                   call.out.dtype() == DType::f32 && call.out.is_contiguous(),
               "out [T, H] in f32");
}

}  // namespace

void run_experts(const Backend& backend, const ExpertCall& call) {
  check(call);
  const ExpertKernel& kernel = backend.choose(call);
  kernel.run(call, kernel);
}

bool sums_into(const Backend& backend, const ExpertCall& call) {
  const ExpertKernel& kernel = backend.choose(call);
  return kernel.sums_into != nullptr && kernel.sums_into(call, kernel);
}

}  // namespace motley::moe
