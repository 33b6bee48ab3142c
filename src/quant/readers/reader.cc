#include "quant/readers/reader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>

#include "base/cat.h"
#include "quant/input_order.h"
#include "tensor/convert.h"

namespace motley::quant {

using tensor::ConstTensor;
using tensor::Shape;

std::string Reader::name(std::string_view part) const { return cat(request_.module, ".", part); }

Error Reader::bad(std::string what, std::string_view part, std::string fix) const {
  if (fix.empty()) fix = "the checkpoint does not fit its config.json: download it again";
  return {ErrorCode::bad_file, std::move(what), cat("tensor ", quote(name(part))), std::move(fix)};
}

Result<ConstTensor> Reader::take(std::string_view part) {
  const std::optional<ConstTensor> found = find(part);
  if (!found) return bad("it is missing", part);
  used_.push_back(name(part));
  return *found;
}

Result<ConstTensor> Reader::take(std::string_view part, DType type, const Shape& shape) {
  MOTLEY_TRY(const ConstTensor found, take(part));
  if (found.dtype() != type)
    return bad(cat("its type is ", motley::name(found.dtype()), ", not ", motley::name(type)),
               part);
  MOTLEY_TRY_VOID(check_shape(found, part, shape));
  return found;
}

Result<void> Reader::refuse_others(std::initializer_list<std::string_view> parts) const {
  for (const std::string_view part : parts) {
    if (has(part))
      return Error(ErrorCode::unsupported, "this weight's scheme has no such part",
                   cat("tensor ", quote(name(part))),
                   cat("config.json says ", method_, "; check that it belongs to this checkpoint"));
  }
  return {};
}

Result<void> Reader::check_shape(const ConstTensor& tensor, std::string_view part,
                                 const Shape& shape) const {
  if (tensor.shape() == shape) return {};
  return bad(cat("its shape is ", tensor::to_string(tensor.shape()), ", and ",
                 tensor::to_string(shape), " is needed for a weight of [", out(), ", ", in(), "]"),
             part);
}

Result<std::byte*> Reader::own(std::size_t bytes) {
  MOTLEY_TRY(tensor::Buffer buffer, request_.allocator.allocate(bytes));
  parts_.owned.push_back(std::move(buffer));
  return parts_.owned.back().data();
}

Result<void> Reader::check_scales(const ConstTensor& scales, std::string_view part) {
  constexpr std::array types{DType::f32, DType::f16, DType::bf16, DType::f8_e4m3, DType::f8_e8m0};
  const DType type = scales.dtype();
  if (std::ranges::find(types, type) == types.end())
    return bad(cat("scales of type ", motley::name(type)), part);
  // A piece at a time.
  std::array<float, 4096> numbers{};
  const std::int64_t count = scales.elements();
  for (std::int64_t at = 0; at < count; at += std::ssize(numbers)) {
    const auto some = std::min<std::int64_t>(std::ssize(numbers), count - at);
    const auto piece = std::span(numbers).first(static_cast<std::size_t>(some));
    tensor::widen(type, scales.bytes(), at, piece);
    for (const float scale : piece) {
      if (!std::isfinite(scale)) return bad("a scale that is not finite", part);
    }
  }
  return {};
}

Result<void> Reader::take_scales(std::string_view part, std::int64_t rows, std::int64_t columns) {
  MOTLEY_TRY(ConstTensor scales, take(part));
  // E8M0 is often stored as plain bytes.
  if (scales.dtype() == DType::u8 && parts_.format.scale_type == DType::f8_e8m0)
    scales = ConstTensor(scales.bytes(), DType::f8_e8m0, scales.shape());
  const bool one = rows == 1 && columns == 1 && scales.elements() == 1;
  const bool column = columns == 1 && scales.shape() == Shape{rows};
  const bool spread = scales.shape() == Shape{rows, 1, columns, 1};  // ModelOpt's blocks
  if (!one && !column && !spread) MOTLEY_TRY_VOID(check_shape(scales, part, {rows, columns}));
  MOTLEY_TRY_VOID(check_scales(scales, part));
  parts_.format.scale_type = scales.dtype();
  parts_.scales = scales.bytes();
  return {};
}

Result<void> Reader::take_transposed_scales(std::string_view part, std::int64_t rows,
                                            std::int64_t columns) {
  MOTLEY_TRY(const ConstTensor scales, take(part));
  MOTLEY_TRY_VOID(check_shape(scales, part, {columns, rows}));
  MOTLEY_TRY_VOID(check_scales(scales, part));
  const auto width = static_cast<std::size_t>(bits(scales.dtype()) / 8);
  MOTLEY_TRY(std::byte* const to, own(static_cast<std::size_t>(rows * columns) * width));
  for (std::int64_t column = 0; column < columns; ++column) {
    for (std::int64_t row = 0; row < rows; ++row) {
      std::memcpy(to + static_cast<std::size_t>(row * columns + column) * width,
                  scales.bytes() + static_cast<std::size_t>(column * rows + row) * width, width);
    }
  }
  parts_.format.scale_type = scales.dtype();
  parts_.scales = to;
  return {};
}

Result<float> Reader::take_number(std::string_view part) {
  MOTLEY_TRY(const ConstTensor stored, take(part));
  if (stored.elements() != 1)
    return bad(
        cat("its shape is ", tensor::to_string(stored.shape()), ", and one number is needed"),
        part);
  if (!tensor::can_widen(stored.dtype()))
    return bad(cat("a number of type ", motley::name(stored.dtype())), part);
  float number = 0;
  tensor::widen(stored.dtype(), stored.bytes(), 0, {&number, 1});
  if (!std::isfinite(number)) return bad("a number that is not finite", part);
  return number;
}

Result<void> Reader::take_groups_of_inputs(std::string_view part, std::int64_t groups,
                                           std::int64_t size) {
  MOTLEY_TRY(const ConstTensor stored, take(part, DType::i32, {in()}));
  std::vector<std::int32_t> index(static_cast<std::size_t>(in()));
  std::memcpy(index.data(), stored.bytes(), index.size() * sizeof(std::int32_t));
  std::vector<std::int64_t> columns(static_cast<std::size_t>(groups));
  for (std::int64_t k = 0; k < in(); ++k) {
    const std::int32_t group = index[static_cast<std::size_t>(k)];
    if (group < 0 || group >= groups)
      return bad(cat("input ", k, " is in group ", group, " of ", groups), part);
    ++columns[static_cast<std::size_t>(group)];
  }
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::int64_t needed = std::min(size, in() - group * size);
    const std::int64_t found = columns[static_cast<std::size_t>(group)];
    if (found != needed)
      return bad(cat("group ", group, " has ", found, " inputs, not ", needed), part);
  }
  parts_.format.input_order = !std::ranges::is_sorted(index);
  if (!parts_.format.input_order) return {};
  // Blocks of inputs would no longer be columns side by side.
  if (parts_.format.inputs == kernels::InputRounding::Scales::row_block)
    return Error(ErrorCode::unsupported, "groups in activation order, and activations by block",
                 cat("tensor ", quote(name(part))), "use --activations exact");
  return sort_by_group(index);
}

Result<void> Reader::sort_by_group(const std::vector<std::int32_t>& groups) {
  const CodeRows codes{.rows = out(), .columns = in(), .bits = parts_.format.bits};
  const auto order = std::make_shared<std::vector<std::int32_t>>(order_by_group(groups));
  const bool is_own = std::ranges::any_of(
      parts_.owned, [&](const tensor::Buffer& buffer) { return buffer.data() == parts_.data; });
  // A buffer of its own is not const. NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast)
  auto* to = const_cast<std::byte*>(parts_.data);
  if (!is_own) {
    const std::int64_t row_bytes = ceil_div(in() * codes.bits, 8);
    MOTLEY_TRY(to, own(static_cast<std::size_t>(out() * row_bytes)));
  }
  take_columns(codes, *order, parts_.data, to);
  parts_.data = to;
  parts_.input_order = order;
  return {};
}

Result<void> Reader::keep_zero_points(const std::vector<std::uint8_t>& zeros) {
  const std::uint8_t middle = parts_.format.bits == 4 ? 8 : 128;
  const bool asymmetric =
      std::ranges::any_of(zeros, [&](std::uint8_t zero) { return zero != middle; });
  parts_.format.zero_points = asymmetric;
  if (!asymmetric) return {};
  MOTLEY_TRY(std::byte* const to, own(zeros.size()));
  std::memcpy(to, zeros.data(), zeros.size());
  parts_.zero_points = reinterpret_cast<const std::uint8_t*>(to);
  return {};
}

Result<void> Reader::take_fixed_inputs(std::initializer_list<std::string_view> scale_names) {
  const auto* const there =
      std::ranges::find_if(scale_names, [&](std::string_view part) { return has(part); });
  const bool fixed = parts_.format.inputs == kernels::InputRounding::Scales::fixed;
  if (there == scale_names.end())
    return fixed
               ? Result<void>(bad("the scale of its activations is missing", *scale_names.begin()))
               : Result<void>();
  MOTLEY_TRY(const float scale, take_number(*there));
  if (!(scale > 0)) return bad(cat("activations' scale of ", scale), *there);
  constexpr std::string_view zero_name = "input_zero_point";
  float zero = 0;
  if (has(zero_name)) {
    MOTLEY_TRY(zero, take_number(zero_name));
  }
  // Without static activations (they are dynamic, or left exact) the numbers mean nothing.
  if (!fixed) return {};
  parts_.input_scale = scale;
  parts_.input_zero = zero;
  return {};
}

LoadedWeight Reader::finish() && {
  return LoadedWeight{Weight(std::move(parts_)), std::move(used_), disputed_zero_points_};
}

}  // namespace motley::quant
