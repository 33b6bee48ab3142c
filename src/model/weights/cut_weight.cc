#include "model/weights/cut_weight.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/cat.h"
#include "quant/formats.h"
#include "quant/input_order.h"

namespace motley::model {
namespace {

using Scales = quant::Format::Scales;

// Of those rows `row_bytes` bytes each; `from` is where the first row's begin.
Result<tensor::Buffer> copy_columns(const std::byte* from, const dist::Ranges& rows,
                                    std::size_t row_stride, std::size_t row_bytes,
                                    tensor::Allocator& allocator) {
  MOTLEY_TRY(tensor::Buffer data,
             allocator.allocate(static_cast<std::size_t>(rows.size()) * row_bytes));
  std::byte* to = data.data();
  for (const dist::Range& part : rows.parts()) {
    for (std::int64_t row = part.begin; row < part.end && row_bytes > 0; ++row) {
      std::memcpy(to, from + static_cast<std::size_t>(row) * row_stride, row_bytes);
      to += row_bytes;
    }
  }
  return data;
}

// A part of a quantised weight.
class Part {
 public:
  Part(const quant::Weight& whole, const Cut& cut, bool in_order)
      : view_(whole.view()),
        in_order_(in_order || whole.format().input_order),
        rows_(cut.rows.value_or(dist::Ranges(0, whole.out()))),
        columns_(cut.columns.value_or(dist::Range{0, whole.in()})) {
    parts_.format = whole.format();
    parts_.size = {.out = rows_.size(), .in = columns_.size()};
    parts_.input_order = whole.input_order();
    parts_.scale_factor = view_.scale_factor;
    parts_.input_scale = view_.inputs.scale;
    parts_.input_zero = view_.inputs.zero;
  }

  // Makes the blocks small enough for the part to begin with a whole one: of a block on both sides
  // of a cut, both parts have the scale. Whether the part can be computed with.
  bool make_blocks() {
    quant::Format& format = parts_.format;
    const bool in_blocks = format.scales == Scales::group || format.scales == Scales::block;
    if (in_blocks) format.block_columns = std::gcd(format.block_columns, columns_.begin);
    if (format.scales == Scales::block) {
      const std::vector<dist::Range>& ranges = rows_.parts();
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        format.block_rows = std::gcd(format.block_rows, ranges[i].begin);
        if (i + 1 < ranges.size())
          format.block_rows = std::gcd(format.block_rows, ranges[i].size());
      }
    }
    // Blocks of rounded inputs are columns side by side.
    const bool by_block = format.inputs == kernels::InputRounding::Scales::row_block;
    const bool can_be_filled = format.scales == Scales::group && !by_block;
    const bool scattered = in_order_ && can_be_filled && columns_.size() < view_.in;
    const bool between_bytes = columns_.begin * format.bits % 8 != 0;
    if (!scattered && !between_bytes && quant::is_known(format)) return true;
    if (can_be_filled) fill_blocks();
    return !sources_.empty() && quant::is_known(format);
  }

  Result<quant::Weight> copy(tensor::Allocator& allocator) {
    MOTLEY_TRY(tensor::Buffer codes,
               sources_.empty() ? copy_codes(allocator) : copy_sources(allocator));
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
  // Of inputs that are columns of many blocks, or of parts of them: the columns by their blocks,
  // and those of each filled up to whole small blocks with columns that mean zero.
  void fill_blocks() {
    parts_.format.block_columns = std::gcd(view_.block_columns, std::int64_t{32});
    parts_.format.input_order = true;
    const auto block = static_cast<std::size_t>(parts_.format.block_columns);
    auto inputs = std::make_shared<std::vector<std::int32_t>>();
    for (std::int64_t group = 0; group < view_.groups(); ++group) {
      const std::size_t first = inputs->size();
      const std::int64_t end = std::min((group + 1) * view_.block_columns, view_.in);
      for (std::int64_t column = group * view_.block_columns; column < end; ++column) {
        const std::int64_t input =
            view_.input_order != nullptr ? view_.input_order[column] : column;
        if (input < columns_.begin || input >= columns_.end) continue;
        inputs->push_back(static_cast<std::int32_t>(input - columns_.begin));
        sources_.push_back(static_cast<std::int32_t>(column));
      }
      for (std::size_t at = first; at < inputs->size(); at += block) {
        groups_.push_back(group);
        const std::int32_t beside = (*inputs)[at];
        inputs->resize(std::max(inputs->size(), at + block), beside);
      }
      sources_.resize(inputs->size(), quant::no_column);
    }
    // Other experts have other numbers of blocks; all get as many as any could need.
    if (in_order_) {
      const std::size_t most = most_blocks(static_cast<std::size_t>(columns_.size()), block);
      groups_.resize(most, groups_.back());
      const std::int32_t beside = inputs->back();
      inputs->resize(most * block, beside);
      sources_.resize(most * block, quant::no_column);
    }
    parts_.columns = std::ssize(*inputs);
    parts_.input_order = std::move(inputs);
  }

  // That `inputs` of any groups may take: none has more than the group's.
  std::size_t most_blocks(std::size_t inputs, std::size_t block) const {
    const auto groups = static_cast<std::size_t>(view_.groups());
    const auto of_group = static_cast<std::size_t>(view_.block_columns) / block;
    return std::min((inputs + groups * (block - 1)) / block, groups * of_group);
  }

  std::size_t row_bytes(std::int64_t columns) const {
    return (static_cast<std::size_t>(columns) * static_cast<std::size_t>(view_bits()) + 7) / 8;
  }
  int view_bits() const { return kernels::code_bits(view_.kind); }
  const std::byte* codes_of(std::int64_t row) const {
    return static_cast<const std::byte*>(view_.data) +
           static_cast<std::size_t>(row) * row_bytes(view_.in);
  }
  // The whole's number of a row of the part.
  std::int64_t row_in_whole(std::int64_t row) const {
    for (const dist::Range& part : rows_.parts()) {
      if (row < part.size()) return part.begin + row;
      row -= part.size();
    }
    return 0;
  }

  Result<tensor::Buffer> copy_codes(tensor::Allocator& allocator) const {
    return copy_columns(codes_of(0) + row_bytes(columns_.begin), rows_, row_bytes(view_.in),
                        row_bytes(columns_.size()), allocator);
  }

  Result<tensor::Buffer> copy_sources(tensor::Allocator& allocator) const {
    const std::size_t bytes = row_bytes(parts_.columns);
    MOTLEY_TRY(tensor::Buffer data,
               allocator.allocate(static_cast<std::size_t>(rows_.size()) * bytes));
    const std::uint8_t zero = view_.kind == kernels::WeightKind::int4 ? 8 : 0;
    std::byte* to = data.data();
    for (const dist::Range& part : rows_.parts()) {
      const quant::CodeRows codes{.rows = part.size(), .columns = view_.in, .bits = view_bits()};
      quant::take_columns(codes, sources_, codes_of(part.begin), to, zero);
      to += static_cast<std::size_t>(part.size()) * bytes;
    }
    for (std::int64_t row = 0; view_.zero_points != nullptr && row < rows_.size(); ++row)
      put_zero_points(row, data.data() + static_cast<std::size_t>(row) * bytes);
    return data;
  }

  // Codes of columns that mean zero.
  void put_zero_points(std::int64_t row, std::byte* codes) const {
    const std::int64_t first = row_in_whole(row) / view_.block_rows * view_.groups();
    for (std::size_t k = 0; k < sources_.size(); ++k) {
      if (sources_[k] != quant::no_column) continue;
      const auto block = k / static_cast<std::size_t>(parts_.format.block_columns);
      const std::uint8_t zero = view_.zero_points[first + groups_[block]];
      if (view_bits() == 8) {
        codes[k] = std::byte(zero ^ 0x80U);
      } else {
        const unsigned shift = k % 2 * 4;
        codes[k / 2] = (codes[k / 2] & std::byte(0xF0U >> shift)) | std::byte(zero << shift);
      }
    }
  }

  // Those of the new blocks, each of which lies within an old one.
  Result<const std::byte*> copy_scales(const std::byte* from, std::size_t element,
                                       tensor::Allocator& allocator) {
    const bool by_tensor = parts_.format.scales == Scales::tensor;
    const bool by_row = parts_.format.scales == Scales::channel;
    const std::int64_t block_rows = by_tensor ? rows_.size() : parts_.format.block_rows;
    const std::int64_t block_columns =
        by_tensor || by_row ? columns_.size() : parts_.format.block_columns;
    const std::int64_t columns = parts_.columns > 0 ? parts_.columns : columns_.size();
    const std::int64_t down = (rows_.size() + block_rows - 1) / block_rows;
    const std::int64_t across = (columns + block_columns - 1) / block_columns;
    MOTLEY_TRY(tensor::Buffer scales,
               allocator.allocate(static_cast<std::size_t>(down * across) * element));
    for (std::int64_t i = 0; i < down; ++i) {
      for (std::int64_t j = 0; j < across; ++j) {
        const std::int64_t row = row_in_whole(i * block_rows) / view_.block_rows;
        const std::int64_t group = groups_.empty()
                                       ? (columns_.begin + j * block_columns) / view_.block_columns
                                       : groups_[static_cast<std::size_t>(j)];
        std::memcpy(scales.data() + static_cast<std::size_t>(i * across + j) * element,
                    from + static_cast<std::size_t>(row * view_.groups() + group) * element,
                    element);
      }
    }
    const std::byte* const at = scales.data();
    parts_.owned.push_back(std::move(scales));
    return at;
  }

  const kernels::WeightView& view_;
  bool in_order_;
  dist::Ranges rows_;
  dist::Range columns_;
  quant::Weight::Parts parts_;
  // Where blocks are filled up: each column's in the whole, and each block's group there.
  std::vector<std::int32_t> sources_;
  std::vector<std::int64_t> groups_;
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
  const dist::Ranges rows = cut.rows.value_or(dist::Ranges(0, matrix.dim(0)));
  const dist::Range columns = cut.columns.value_or(dist::Range{0, matrix.dim(1)});
  const std::int64_t width = columns.size();
  if (width == matrix.dim(1) && rows.parts().size() <= 1) {
    const dist::Range all = rows.empty() ? dist::Range{} : rows.parts().front();
    return quant::Weight::borrow(matrix.slice(0, all.begin, all.end));
  }
  const auto element = static_cast<std::size_t>(bits(matrix.dtype()) / 8);
  const std::byte* const from = matrix.bytes() + static_cast<std::size_t>(columns.begin) * element;
  MOTLEY_TRY(tensor::Buffer data,
             copy_columns(from, rows, static_cast<std::size_t>(matrix.stride(0)) * element,
                          static_cast<std::size_t>(width) * element, allocator));
  return quant::Weight::own(quant::plain_format(matrix.dtype()), {.out = rows.size(), .in = width},
                            std::move(data));
}

Result<quant::Weight> cut_weight(const quant::Weight& whole, const Cut& cut,
                                 std::string_view module, tensor::Allocator& allocator,
                                 bool in_order) {
  const quant::TrueSize size = size_of(cut, {.out = whole.out(), .in = whole.in()});
  // Nothing is computed with it, but ranks round the inputs together.
  if (size.out == 0 || size.in == 0) return nothing_of(whole.format(), size);
  Part part(whole, cut, in_order);
  if (!part.make_blocks())
    return Error(ErrorCode::unsupported,
                 cat("weights in ", to_string(whole.format()), " can't be cut over ranks at input ",
                     cut.columns ? cut.columns->begin : 0),
                 std::string(module), "use another number of ranks");
  return part.copy(allocator);
}

}  // namespace motley::model
