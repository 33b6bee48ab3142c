#include "ops/logits.h"

#include "kernels/elementary.h"
#include "ops/check.h"

namespace motley::ops {
namespace {

void check_ids(const tensor::ConstTensor& ids, const tensor::ConstTensor& logits) {
  check_float32(logits, 2);
  MOTLEY_CHECK(ids.shape().rank() == 2 && ids.dtype() == DType::i32 && ids.is_contiguous() &&
                   ids.dim(0) == logits.dim(0),
               "as many ids for each row");
}

}  // namespace

void log_probabilities(const Context& context, const tensor::ConstTensor& logits,
                       const tensor::ConstTensor& ids, const tensor::Tensor& out,
                       const tensor::Tensor& ranks) {
  check_context(context);
  check_ids(ids, logits);
  check_float32(out, 2);
  MOTLEY_CHECK(out.shape() == ids.shape() && out.is_contiguous(), "a place for every answer");
  const bool ranked = ranks.bytes() != nullptr;
  MOTLEY_CHECK(!ranked || (ranks.shape() == ids.shape() && ranks.dtype() == DType::i32 &&
                           ranks.is_contiguous()),
               "a rank for each id, or none");
  const auto* const chosen = ids.data<std::int32_t>();
  // The host cannot check ids in a GPU's memory.
  for (std::int64_t i = 0; ids.device().kind == tensor::DeviceKind::cpu && i < ids.elements(); ++i)
    MOTLEY_CHECK(chosen[i] >= 0 && chosen[i] < logits.dim(1), "an id of the vocabulary");
  context.kernels->log_probabilities({.rows = logits.dim(0),
                                      .width = logits.dim(1),
                                      .logits = logits.data<float>(),
                                      .logits_stride = logits.stride(0),
                                      .chosen = ids.dim(1),
                                      .ids = chosen,
                                      .out = out.data<float>(),
                                      .ranks = ranked ? ranks.data<std::int32_t>() : nullptr},
                                     context.stream);
}

void top_k(const Context& context, const tensor::ConstTensor& x, const tensor::Tensor& ids,
           const tensor::Tensor& values) {
  check_context(context);
  check_ids(ids, x);
  MOTLEY_CHECK(ids.dim(1) <= x.dim(1), "no more than there are");
  const bool wanted = values.bytes() != nullptr;
  if (wanted) {
    check_float32(values, 2);
    MOTLEY_CHECK(values.shape() == ids.shape() && values.is_contiguous(),
                 "a value for each id, or none");
  }
  context.kernels->top_k({.rows = x.dim(0),
                          .width = x.dim(1),
                          .x = x.data<float>(),
                          .x_stride = x.stride(0),
                          .k = ids.dim(1),
                          .ids = ids.data<std::int32_t>(),
                          .values = wanted ? values.data<float>() : nullptr},
                         context.stream);
}

}  // namespace motley::ops
