#include "model/forward/frame.h"

#include "ops/attention.h"

namespace motley::model {

using ops::RowsOf;
using ops::Value;
using tensor::Tensor;

namespace {

// The rows of a root through a view.
Tensor view_of(const Tensor& rows, const Value& value) {
  if (value.root == ops::no_value && value.heads == 0) return rows;
  if (value.heads == 0) return rows.slice(1, value.first, value.first + value.width);
  return rows.slice(1, value.first, value.first + value.heads * value.head_stride)
      .split(1, value.head_stride)
      .slice(2, value.in_head, value.in_head + value.width);
}

}  // namespace

Tensor Frame::whole(ops::ValueId id) const {
  const Value& value = list.value(id);
  const ops::ValueId root_id = list.root_of(id);
  const Value& root = list.value(root_id);
  if (root.external >= 0) return view_of(externals[static_cast<std::size_t>(root.external)], value);
  const std::int64_t rows =
      root.rows == RowsOf::tokens ? batch.count : part.positions + ops::rows_after_positions;
  std::byte* const at = memory + plan.value_at[static_cast<std::size_t>(root_id)];
  return view_of(Tensor(at, root.type, {rows, root.width}, device), value);
}

Tensor Frame::at(ops::ValueId id) const {
  const Tensor all = whole(id);
  if (list.value(id).rows == RowsOf::positions) return all.slice(0, 0, part.positions);
  return all.slice(0, part.first_row, part.first_row + part.rows);
}

}  // namespace motley::model
