#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "quant/load.h"
#include "quant/scheme.h"
#include "tensor/buffer.h"
#include "tensor/tensor.h"

namespace motley::quant {

// A weight while it is read: the tensors of its module, what has been taken of them, and the parts
// of the weight so far. Errors name the tensor.
class Reader {
 public:
  Reader(const WeightRequest& request, std::string_view method)
      : request_(request), method_(method) {
    parts_.size = request.size;
  }

  std::int64_t out() const { return request_.size.out; }
  std::int64_t in() const { return request_.size.in; }
  Weight::Parts& parts() { return parts_; }
  std::string_view method() const { return method_; }

  // The full name of a part: "<module>.<part>".
  std::string name(std::string_view part) const;
  bool has(std::string_view part) const { return request_.lookup(name(part)).has_value(); }
  std::optional<tensor::ConstTensor> find(std::string_view part) const {
    return request_.lookup(name(part));
  }
  // A part that must be there; it counts as used.
  Result<tensor::ConstTensor> take(std::string_view part);
  // The same of that type and shape.
  Result<tensor::ConstTensor> take(std::string_view part, DType type, const tensor::Shape& shape);
  // What belongs to a scheme that this is not must not be left over in silence.
  Result<void> refuse_others(std::initializer_list<std::string_view> parts) const;

  Error bad(std::string what, std::string_view part, std::string fix = {}) const;
  Result<void> check_shape(const tensor::ConstTensor& tensor, std::string_view part,
                           const tensor::Shape& shape) const;

  // Memory of the weight's own.
  Result<std::byte*> own(std::size_t bytes);
  // Scales [rows, columns] as they are stored, in place; they must be finite numbers. A single
  // number may have any shape, a column may be a vector, and there may be dimensions of 1.
  Result<void> take_scales(std::string_view part, std::int64_t rows, std::int64_t columns);
  // The same of scales stored [columns, rows].
  Result<void> take_transposed_scales(std::string_view part, std::int64_t rows,
                                      std::int64_t columns);
  // A single number of a file.
  Result<float> take_number(std::string_view part);
  // The group of each input, [in]; groups have `size` inputs each, the last what is left. Columns
  // of codes, which must have been taken, are sorted by their groups where they are not.
  Result<void> take_groups_of_inputs(std::string_view part, std::int64_t groups, std::int64_t size);
  // Zero points that all mean the code in the middle are left out.
  Result<void> keep_zero_points(const std::vector<std::uint8_t>& zeros);
  // The fixed scale of inputs, and their zero point, where the format has one.
  Result<void> take_fixed_inputs(std::initializer_list<std::string_view> scale_names);

  void dispute_zero_points() { disputed_zero_points_ = true; }

  LoadedWeight finish() &&;

 private:
  Result<void> sort_by_group(const std::vector<std::int32_t>& groups);
  Result<void> check_scales(const tensor::ConstTensor& scales, std::string_view part);

  const WeightRequest& request_;
  std::string_view method_;
  Weight::Parts parts_;
  std::vector<std::string> used_;
  bool disputed_zero_points_ = false;
};

// Elements of a stream of `bits` each, the lowest bits of a word first.
inline std::uint32_t bits_at(const std::byte* words, std::int64_t index, int bits) {
  const std::int64_t at = index * bits;
  std::uint32_t value = 0;
  for (int b = 0; b < bits; ++b) {
    const std::int64_t bit = at + b;
    const auto byte = static_cast<std::uint32_t>(words[bit / 8]);
    value |= (byte >> (bit % 8) & 1U) << b;
  }
  return value;
}

inline std::int64_t ceil_div(std::int64_t length, std::int64_t part) {
  return (length + part - 1) / part;
}

// One for each Layout. The scheme's format is the parts' already; its scale type is what is stored.
Result<void> read_scaled(Reader& reader, const Scheme& scheme);
Result<void> read_packed(Reader& reader, const Scheme& scheme);
Result<void> read_fp4(Reader& reader, const Scheme& scheme);
Result<void> read_gptq(Reader& reader, const Scheme& scheme);
Result<void> read_awq(Reader& reader, const Scheme& scheme);

}  // namespace motley::quant
