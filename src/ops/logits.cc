#include "ops/logits.h"

#include "kernels/elementary.h"
#include "ops/check.h"

namespace motley::ops {
namespace {

std::int64_t ids_a_row(std::size_t ids, std::int64_t rows) {
  const auto count = static_cast<std::int64_t>(ids);
  if (rows == 0) {
    MOTLEY_CHECK(count == 0, "no ids without rows");
    return 0;
  }
  MOTLEY_CHECK(count % rows == 0, "as many ids for each row");
  return count / rows;
}

}  // namespace

void log_probabilities(const Context& context, const tensor::ConstTensor& logits,
                       std::span<const std::int32_t> ids, std::span<float> out) {
  check_context(context);
  check_float32(logits, 2);
  MOTLEY_CHECK(ids.size() == out.size(), "a place for every answer");
  for (const std::int32_t id : ids)
    MOTLEY_CHECK(id >= 0 && id < logits.dim(1), "an id of the vocabulary");
  context.kernels->log_probabilities({.rows = logits.dim(0),
                                      .width = logits.dim(1),
                                      .logits = logits.data<float>(),
                                      .logits_stride = logits.stride(0),
                                      .chosen = ids_a_row(ids.size(), logits.dim(0)),
                                      .ids = ids.data(),
                                      .out = out.data()},
                                     context.stream);
}

void top_k(const Context& context, const tensor::ConstTensor& x, std::span<std::int32_t> ids,
           std::span<float> values) {
  check_context(context);
  check_float32(x, 2);
  const std::int64_t k = ids_a_row(ids.size(), x.dim(0));
  MOTLEY_CHECK(k <= x.dim(1), "no more than there are");
  MOTLEY_CHECK(values.empty() || values.size() == ids.size(), "a value for each id, or none");
  context.kernels->top_k({.rows = x.dim(0),
                          .width = x.dim(1),
                          .x = x.data<float>(),
                          .x_stride = x.stride(0),
                          .k = k,
                          .ids = ids.data(),
                          .values = values.empty() ? nullptr : values.data()},
                         context.stream);
}

}  // namespace motley::ops
