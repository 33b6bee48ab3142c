#include "model/weights/cut_weight.h"

#include <cstddef>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "base/cat.h"
#include "quant/formats.h"

namespace motley::model {
namespace {

using Scales = quant::Format::Scales;

Result<tensor::Buffer> copy_columns(const std::byte* from, std::int64_t rows,
                                    std::size_t row_stride, std::size_t row_bytes,
                                    tensor::Allocator& allocator) {
  MOTLEY_TRY(tensor::Buffer data, allocator.allocate(static_cast<std::size_t>(rows) * row_bytes));
  for (std::int64_t row = 0; row < rows && row_bytes > 0; ++row)
    std::memcpy(data.data() + static_cast<std::size_t>(row) * row_bytes,
                from + static_cast<std::size_t>(row) * row_stride, row_bytes);
  return data;
}

// Why a weight can't be cut, and what to do about it.
struct Refusal {
  std::string reason;  // behind "can't be cut over ranks"
  std::string fix;
};

// A part of a quantised weight.
class Part {
 public:
  Part(const quant::Weight& whole, const Cut& cut)
      : view_(whole.view()),
        rows_(cut.rows.value_or(dist::Range{0, whole.out()})),
        columns_(cut.columns.value_or(dist::Range{0, whole.in()})) {
    parts_.format = whole.format();
    parts_.size = {.out = rows_.size(), .in = columns_.size()};
    parts_.input_order = whole.input_order();
    parts_.scale_factor = view_.scale_factor;
    parts_.input_scale = view_.inputs.scale;
    parts_.input_zero = view_.inputs.zero;
  }

  // Makes the blocks small enough for the part to begin with a whole one: of a block on both sides
  // of a cut, both parts have the scale. Nothing if the part can be computed with.
  std::optional<Refusal> make_blocks() {
    quant::Format& format = parts_.format;
    const bool in_blocks = format.scales == Scales::group || format.scales == Scales::block;
    if (in_blocks) format.block_columns = std::gcd(format.block_columns, columns_.begin);
    if (format.scales == Scales::block)
      format.block_rows = std::gcd(format.block_rows, rows_.begin);
    const bool whole_rows = columns_.size() == view_.in;
    // A rank's inputs are columns of every group, of each another number.
    if (!whole_rows && format.input_order)
      return Refusal{", as every group has inputs of every rank", "leave --tp out"};
    const std::int64_t bits = format.bits;
    if (columns_.begin * bits % 8 != 0 || !quant::is_known(format))
      return Refusal{cat(" at input ", columns_.begin), "use another number of ranks"};
    return std::nullopt;
  }

  Result<quant::Weight> copy(tensor::Allocator& allocator) {
    const auto bits = static_cast<std::size_t>(parts_.format.bits);
    const auto bytes_of = [bits](std::int64_t codes) {
      return (static_cast<std::size_t>(codes) * bits + 7) / 8;
    };
    const std::size_t stride = bytes_of(view_.in);
    const std::byte* const from = static_cast<const std::byte*>(view_.data) +
                                  static_cast<std::size_t>(rows_.begin) * stride +
                                  bytes_of(columns_.begin);
    MOTLEY_TRY(tensor::Buffer codes,
               copy_columns(from, rows_.size(), stride, bytes_of(columns_.size()), allocator));
    parts_.data = codes.data();
    parts_.owned.push_back(std::move(codes));
    const auto scale_bytes = static_cast<std::size_t>(motley::bits(view_.scale_type) / 8);
    MOTLEY_TRY(parts_.scales,
               copy_scales(static_cast<const std::byte*>(view_.scales), scale_bytes, allocator));
    if (view_.zero_points != nullptr) {
      MOTLEY_TRY(const std::byte* const zeros,
                 copy_scales(reinterpret_cast<const std::byte*>(view_.zero_points), 1, allocator));
      parts_.zero_points = reinterpret_cast<const std::uint8_t*>(zeros);
    }
    quant::Weight part(std::move(parts_));
    part.begin_inputs_at(columns_.begin);
    return part;
  }

 private:
  // Those of the new blocks, each of which lies within an old one.
  Result<const std::byte*> copy_scales(const std::byte* from, std::size_t element,
                                       tensor::Allocator& allocator) {
    const bool by_tensor = parts_.format.scales == Scales::tensor;
    const bool by_row = parts_.format.scales == Scales::channel;
    const std::int64_t block_rows = by_tensor ? rows_.size() : parts_.format.block_rows;
    const std::int64_t block_columns =
        by_tensor || by_row ? columns_.size() : parts_.format.block_columns;
    const std::int64_t down = (rows_.size() + block_rows - 1) / block_rows;
    const std::int64_t across = (columns_.size() + block_columns - 1) / block_columns;
    MOTLEY_TRY(tensor::Buffer scales,
               allocator.allocate(static_cast<std::size_t>(down * across) * element));
    for (std::int64_t i = 0; i < down; ++i) {
      for (std::int64_t j = 0; j < across; ++j) {
        const std::int64_t row = (rows_.begin + i * block_rows) / view_.block_rows;
        const std::int64_t column = (columns_.begin + j * block_columns) / view_.block_columns;
        std::memcpy(scales.data() + static_cast<std::size_t>(i * across + j) * element,
                    from + static_cast<std::size_t>(row * view_.groups() + column) * element,
                    element);
      }
    }
    const std::byte* const at = scales.data();
    parts_.owned.push_back(std::move(scales));
    return at;
  }

  const kernels::WeightView& view_;
  dist::Range rows_;
  dist::Range columns_;
  quant::Weight::Parts parts_;
};

quant::Weight nothing_of(const quant::Format& whole, quant::TrueSize size) {
  quant::Format format = quant::plain_format(DType::f32);
  format.inputs = whole.inputs;
  format.input_type = whole.input_type;
  format.power_of_two_inputs = whole.power_of_two_inputs;
  format.input_columns = whole.input_columns;
  return quant::Weight({.format = format, .size = size});
}

}  // namespace

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
  const std::byte* const from =
      rows.bytes() + static_cast<std::size_t>(cut.columns->begin) * element;
  MOTLEY_TRY(tensor::Buffer data,
             copy_columns(from, rows.dim(0), static_cast<std::size_t>(rows.stride(0)) * element,
                          static_cast<std::size_t>(width) * element, allocator));
  return quant::Weight::own(quant::plain_format(rows.dtype()), {.out = rows.dim(0), .in = width},
                            std::move(data));
}

Result<quant::Weight> cut_weight(const quant::Weight& whole, const Cut& cut,
                                 std::string_view module, tensor::Allocator& allocator) {
  const quant::TrueSize size = size_of(cut, {.out = whole.out(), .in = whole.in()});
  // Nothing is computed with it, but ranks round the inputs together.
  if (size.out == 0 || size.in == 0) return nothing_of(whole.format(), size);
  Part part(whole, cut);
  if (const std::optional<Refusal> refusal = part.make_blocks())
    return Error(
        ErrorCode::unsupported,
        cat("weights in ", to_string(whole.format()), " can't be cut over ranks", refusal->reason),
        std::string(module), refusal->fix);
  return part.copy(allocator);
}

}  // namespace motley::model
