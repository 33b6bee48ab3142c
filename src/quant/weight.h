#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/weight_view.h"
#include "tensor/buffer.h"
#include "tensor/tensor.h"

namespace motley::quant {

// Sizes that a file's padding may exceed: a number of packed words is never taken for one of
// elements.
struct TrueSize {
  std::int64_t out = 0;
  std::int64_t in = 0;
};

// What the numbers of a stored weight mean, and how inputs are rounded for it: data, never a class
// per method.
struct Format {
  // Which numbers share a scale.
  enum class Scales : std::uint8_t {
    none,
    tensor,   // all
    channel,  // a row
    group,    // block_columns inputs of a row
    block,    // block_rows rows and block_columns inputs
  };

  DType element = DType::f32;  // f32, f16, bf16, f8_e4m3, f4 (e2m1), or i8 for integers
  int bits = 32;
  Scales scales = Scales::none;
  std::int64_t block_rows = 1;
  std::int64_t block_columns = 0;
  DType scale_type = DType::f32;  // f32, f16, bf16, f8_e4m3 or f8_e8m0
  bool global_scale = false;      // times a number of the whole weight (NVFP4)
  bool zero_points = false;
  bool input_order = false;  // columns stand in an order of their own (activation order)
  // How inputs are rounded. Its fixed scale and zero are a weight's, not its format's.
  kernels::InputRounding::Scales inputs = kernels::InputRounding::Scales::none;
  DType input_type = DType::i8;
  bool power_of_two_inputs = false;
  std::int64_t input_columns = 0;

  // Of inputs that stay as they are.
  void keep_inputs_exact() {
    inputs = kernels::InputRounding::Scales::none;
    input_type = DType::i8;
    power_of_two_inputs = false;
    input_columns = 0;
  }

  friend bool operator==(const Format&, const Format&) = default;
};

// "bf16", "int4 group 128", "int8 channel, int8 inputs", "fp8 block 128x128"
std::string to_string(const Format& format);
// Of numbers without scales.
inline Format plain_format(DType element) { return {.element = element, .bits = bits(element)}; }

// A weight matrix ready for kernels. It borrows what stays where it is (a mapped file's bytes,
// where their layout is the kernels') and owns what had to be made.
class Weight {
 public:
  struct Parts {
    Format format;
    TrueSize size;
    const std::byte* data = nullptr;
    const std::byte* scales = nullptr;
    const std::uint8_t* zero_points = nullptr;
    // The input of each column, [columns], and where kernels read it: there, if they read
    // elsewhere. With it there may be more columns than inputs: those that fill a block up, each
    // beside one that its input has, mean zero.
    std::shared_ptr<const std::vector<std::int32_t>> input_order = nullptr;
    const std::int32_t* input_order_there = nullptr;
    std::int64_t columns = 0;  // 0: one for each input
    float scale_factor = 1;
    float input_scale = 0;  // of fixed inputs
    float input_zero = 0;
    std::int64_t input_first = 0;            // where ranks cut rows: of InputRounding
    std::vector<tensor::Buffer> owned = {};  // memory of those of the above that stay nowhere else
  };

  Weight() = default;
  explicit Weight(Parts parts);
  // A plain matrix [out, in] that the caller keeps.
  static Weight borrow(const tensor::ConstTensor& matrix);
  // Codes of its own, and scales where the format has them.
  static Weight own(const Format& format, TrueSize size, tensor::Buffer data,
                    tensor::Buffer scales = {});

  // Products take inputs as they are, whatever the file says of activations.
  void keep_inputs_exact();
  // Its inputs are those of a row from this one on.
  void begin_inputs_at(std::int64_t input);

  const Format& format() const { return format_; }
  std::int64_t out() const { return view_.out; }
  std::int64_t in() const { return in_; }
  std::int64_t columns() const { return view_.in; }
  const kernels::WeightView& view() const { return view_; }
  const std::shared_ptr<const std::vector<std::int32_t>>& input_order() const {
    return input_order_;
  }
  // Whether products of both take inputs alike: in one order, rounded with one scale.
  bool takes_inputs_like(const Weight& other) const;

  // Bytes of the codes, and how many scales there are (and as many zero points, where there are).
  std::size_t data_bytes() const;
  std::size_t scale_count() const;
  // Of all that products read.
  std::size_t stored_bytes() const;

  // Rows [begin, end) as float32 into out[(end - begin) * in()]. Of a weight in the host's memory.
  void decode(std::int64_t begin, std::int64_t end, float* out) const;

 private:
  Format format_;
  std::int64_t in_ = 0;
  kernels::WeightView view_;
  std::shared_ptr<const std::vector<std::int32_t>> input_order_;
  std::vector<tensor::Buffer> owned_;
};

}  // namespace motley::quant
