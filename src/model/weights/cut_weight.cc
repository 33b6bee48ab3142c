#include "model/weights/cut_weight.h"

#include <cstddef>
#include <cstring>

namespace motley::model {

quant::TrueSize size_of(const Cut& cut, quant::TrueSize whole) {
  return {.out = cut.rows ? cut.rows->size() : whole.out,
          .in = cut.columns ? cut.columns->size() : whole.in};
}

Result<quant::Weight> cut_weight(const tensor::ConstTensor& matrix, const Cut& cut,
                                 tensor::Allocator& allocator) {
  tensor::ConstTensor rows = matrix;
  if (cut.rows) rows = rows.slice(0, cut.rows->begin, cut.rows->end);
  if (!cut.columns) return quant::Weight::borrow(rows);
  const std::int64_t width = cut.columns->size();
  const auto element = static_cast<std::size_t>(bits(rows.dtype()) / 8);
  const std::size_t row_bytes = static_cast<std::size_t>(width) * element;
  MOTLEY_TRY(tensor::Buffer data,
             allocator.allocate(static_cast<std::size_t>(rows.dim(0)) * row_bytes));
  const std::byte* from = rows.bytes() + static_cast<std::size_t>(cut.columns->begin) * element;
  for (std::int64_t row = 0; row < rows.dim(0) && row_bytes > 0; ++row)
    std::memcpy(data.data() + static_cast<std::size_t>(row) * row_bytes,
                from + static_cast<std::size_t>(row * rows.stride(0)) * element, row_bytes);
  return quant::Weight::own(quant::plain_format(rows.dtype()), {.out = rows.dim(0), .in = width},
                            std::move(data));
}

}  // namespace motley::model
