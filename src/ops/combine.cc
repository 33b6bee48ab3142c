#include "ops/combine.h"

#include "kernels/elementary.h"
#include "ops/check.h"

namespace motley::ops {

void combine(const Context& context, const tensor::ConstTensor& x,
             const tensor::ConstTensor& weights, const CombineOptions& options,
             const tensor::Tensor& out) {
  check_context(context);
  check_float32(x, 2);
  check_float32(weights, 2);
  check_float32(out, 2);
  MOTLEY_CHECK(weights.is_contiguous() && weights.dim(0) == out.dim(0), "weights for each row");
  MOTLEY_CHECK(x.dim(1) == out.dim(1), "rows of one width");
  MOTLEY_CHECK(options.places.empty() ||
                   static_cast<std::int64_t>(options.places.size()) == weights.elements(),
               "a place for each weight");
  context.kernels->combine({.rows = out.dim(0),
                            .slots = weights.dim(1),
                            .width = out.dim(1),
                            .x = x.data<float>(),
                            .x_stride = x.stride(0),
                            .x_rows = x.dim(0),
                            .places = options.places.empty() ? nullptr : options.places.data(),
                            .weights = weights.data<float>(),
                            .out = out.data<float>(),
                            .out_stride = out.stride(0),
                            .accumulate = options.accumulate},
                           context.stream);
}

}  // namespace motley::ops
