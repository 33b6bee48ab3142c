#include "ops/embed.h"

#include "kernels/elementary.h"
#include "ops/check.h"

namespace motley::ops {

void embed(const Context& context, const tensor::ConstTensor& table, const std::int32_t* ids,
           const tensor::Tensor& out) {
  check_context(context);
  check_float32(out, 2);
  MOTLEY_CHECK(table.shape().rank() == 2 && table.is_contiguous(), "a table of whole rows");
  MOTLEY_CHECK(is_activation(table.dtype()) || table.dtype() == DType::f16, "f32, f16 or bf16");
  MOTLEY_CHECK(table.dim(1) == out.dim(1), "rows of the table's width");
  context.kernels->embed({.rows = out.dim(0),
                          .width = out.dim(1),
                          .table = table.bytes(),
                          .table_type = table.dtype(),
                          .table_rows = table.dim(0),
                          .ids = ids,
                          .out = out.data<float>(),
                          .out_stride = out.stride(0)},
                         context.stream);
}

}  // namespace motley::ops
