#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "gpu/device_weight.h"
#include "gpu/twin.h"
#include "kernels/cuda/linear/dense_kernels.h"
#include "kernels/cuda/primitives/device.h"
#include "kernels/input_rounding.h"

// Products of codes with codes against float64 over what the codes mean.
namespace motley::gpu_tests {
namespace {

using kernels::ArrangeInputs;
using kernels::InputRounding;
using kernels::Linear;
using kernels::WeightKind;
using kernels::cpu::Format;
using kernels::cpu::Numbers;
using kernels::cuda::coded_kernel;
using kernels::cuda::DenseProblem;
using Scales = InputRounding::Scales;

constexpr std::int64_t whole_row = 1 << 20;

struct CodedCase {
  std::string name;
  Format format;
};

std::vector<CodedCase> cases() {
  constexpr DType f8 = DType::f8_e4m3;
  const Format fp8_blocks{.kind = WeightKind::f8_e4m3,
                          .block_rows = 128,
                          .block_columns = 128,
                          .inputs = {.scales = Scales::row_block, .type = f8, .columns = 128}};
  std::vector<CodedCase> all = {{"fp8_block", fp8_blocks}};
  const auto add = [&](std::string name, WeightKind kind, std::int64_t block_rows,
                       std::int64_t block_columns, const InputRounding& inputs) {
    Format format = fp8_blocks;
    format.kind = kind;
    format.block_rows = block_rows;
    format.block_columns = block_columns;
    format.inputs = inputs;
    all.push_back({std::move(name), format});
  };
  const InputRounding fp8_row{.scales = Scales::row, .type = f8};
  const InputRounding fp8_block = fp8_blocks.inputs;
  const InputRounding int8_row{.scales = Scales::row};
  add("fp8_power_of_two", WeightKind::f8_e4m3, 128, 128,
      {.scales = Scales::row_block, .type = f8, .power_of_two = true, .columns = 128});
  add("fp8_tensor", WeightKind::f8_e4m3, whole_row, whole_row,
      {.scales = Scales::fixed, .type = f8, .scale = 0.01F});
  add("fp8_channel", WeightKind::f8_e4m3, 1, whole_row, fp8_row);
  add("fp8_channel_of_blocks", WeightKind::f8_e4m3, 1, whole_row, fp8_block);
  add("fp8_blocks_of_rows", WeightKind::f8_e4m3, 128, 128, fp8_row);
  add("int8_channel", WeightKind::i8, 1, whole_row, int8_row);
  add("int8_tensor", WeightKind::i8, whole_row, whole_row,
      {.scales = Scales::fixed, .scale = 0.02F});
  add("int8_block", WeightKind::i8, 128, 128, {.scales = Scales::row_block, .columns = 128});
  all.push_back({"fp8_scales_of_bf16", fp8_blocks});
  all.back().format.scale_type = DType::bf16;
  all.back().format.scale_factor = 0.5F;
  return all;
}

// Rows as the file rounds them. Of rows that ranks cut, the largest number may be another rank's:
// `beyond` times as large.
std::vector<double> rounded(const TwinRows& x, std::int64_t row, const InputRounding& rounding,
                            float beyond = 1) {
  const std::int64_t part = rounding.scales == Scales::row_block ? rounding.columns : x.width();
  std::vector<double> all;
  for (std::int64_t begin = 0; begin < x.width(); begin += part) {
    const std::int64_t end = std::min(begin + part, x.width());
    float largest = 0;
    for (std::int64_t k = begin; k < end; ++k)
      largest = std::fmax(largest, std::fabs(static_cast<float>(x.at(row, k))));
    const float scale = input_scale(rounding, beyond * largest);
    for (std::int64_t k = begin; k < end; ++k)
      all.push_back(rounded_input(rounding, scale, static_cast<float>(x.at(row, k))));
  }
  return all;
}

// A product, the rows that it reads, and where these are rounded to.
struct Call {
  Linear product;
  ArrangeInputs inputs;

  Call(const TwinRows& x, const TwinRows& arranged, const DeviceWeight& w, const TwinRows& y)
      : product{.rows = x.rows(),
                .x = arranged.device(),
                .x_type = DType::bf16,
                .x_stride = arranged.stride(),
                .w = w.view,
                .w_rows_per_head = w.view.out,
                .out = w.view.out,
                .y = reinterpret_cast<float*>(y.device()),
                .y_stride = y.stride(),
                .exact = false},
        inputs{.rows = x.rows(),
               .width = x.width(),
               .x = x.device(),
               .x_type = DType::bf16,
               .x_stride = x.stride(),
               .rounding = w.view.inputs,
               .out = arranged.device(),
               .out_stride = arranged.stride()} {}
};

// Integers are exact until they are scaled. The tensor core cuts the terms of a sum of FP8 13 bits
// behind the largest, which is no larger than all of them together; cuts of 32 terms average out.
double tolerance(const Format& format, std::int64_t in) {
  const std::int64_t sums = in / 128 + 4;
  return format.kind == WeightKind::i8 ? static_cast<double>(sums) * 0x1p-24 : 0x1p-11;
}

void expect_products(const TwinRows& x, const DeviceWeight& w, const Format& format,
                     const TwinRows& y, float beyond = 1) {
  const std::vector<std::byte> read = y.read_device();
  for (std::int64_t row = 0; row < x.rows(); row += 1 + x.rows() / 9) {
    const std::vector<double> inputs = rounded(x, row, format.inputs, beyond);
    for (std::int64_t o = 0; o < y.width(); ++o) {
      double sum = 0;
      double magnitude = 0;
      for (std::int64_t k = 0; k < x.width(); ++k) {
        const double product = inputs[static_cast<std::size_t>(k)] * w.host.at(o, k);
        sum += product;
        magnitude += std::abs(product);
      }
      ASSERT_NEAR(y.at(read.data(), row, o), sum, tolerance(format, x.width()) * magnitude + 1e-30)
          << "row " << row << ", output " << o;
    }
  }
  y.expect_gaps_alone(read);
}

class CodedLinear : public testing::TestWithParam<CodedCase> {};

TEST_P(CodedLinear, MultipliesWhatTheCodesMean) {
  const Format& format = GetParam().format;
  Numbers numbers(1);
  struct Sizes {
    std::int64_t rows, in, out;
  };
  for (const Sizes& sizes :
       {Sizes{1, 128, 8}, Sizes{64, 144, 130}, Sizes{129, 2048, 384}, Sizes{300, 400, 77},
        Sizes{256, 1024, 1280}, Sizes{700, 256, 64}, Sizes{2100, 128, 2200}}) {
    SCOPED_TRACE(cat(sizes.rows, " rows, ", sizes.out, " x ", sizes.in));
    const DeviceWeight w = on_device_rounded(numbers, format, sizes.out, sizes.in);
    const TwinRows x(numbers, DType::bf16, sizes.rows, sizes.in, 8);
    const TwinRows arranged(DType::bf16, sizes.rows, sizes.in, 0);
    const TwinRows y(DType::f32, sizes.rows, sizes.out, sizes.out % 2 + 2);
    const Call call(x, arranged, w, y);
    const DenseProblem problem{.products = {&call.product, 1}, .inputs = &call.inputs};
    const kernels::Support support = coded_kernel.supports(problem);
    ASSERT_TRUE(support) << support.reason();
    coded_kernel.run(problem, {}, default_stream());
    expect_products(x, w, format, y);
  }
}

// The maxima of [rows, scales] inputs, `beyond` times as large.
std::vector<float> maxima_of(const TwinRows& x, const InputRounding& rounding, float beyond) {
  const std::int64_t part = rounding.scales == Scales::row_block ? rounding.columns : x.width();
  std::vector<float> all;
  for (std::int64_t row = 0; row < x.rows(); ++row) {
    for (std::int64_t begin = 0; begin < x.width(); begin += part) {
      float largest = 0;
      for (std::int64_t k = begin; k < std::min(begin + part, x.width()); ++k)
        largest = std::fmax(largest, std::fabs(static_cast<float>(x.at(row, k))));
      all.push_back(beyond * largest);
    }
  }
  return all;
}

TEST_P(CodedLinear, RoundsPartsOfRowsByTheMaximaOfWholeOnes) {
  const Format& format = GetParam().format;
  if (format.inputs.scales == Scales::fixed) return;
  Numbers numbers(7);
  constexpr float beyond = 1.7F;
  for (const std::int64_t in : {144, 512, 4240}) {
    const DeviceWeight w = on_device_rounded(numbers, format, 130, in);
    const TwinRows x(numbers, DType::bf16, 70, in, 0);
    const TwinRows arranged(DType::bf16, 70, in, 0);
    const TwinRows y(DType::f32, 70, 130, 2);
    const std::vector<float> maxima = maxima_of(x, format.inputs, beyond);
    const DeviceArray<float> maxima_there(maxima);
    Call call(x, arranged, w, y);
    call.inputs.maxima = {maxima_there.data(), static_cast<std::int64_t>(maxima.size()) / 70};
    coded_kernel.run({.products = {&call.product, 1}, .inputs = &call.inputs}, {},
                     default_stream());
    expect_products(x, w, format, y, beyond);
  }
}

// Several weights of one x, in one launch; their results are apart.
TEST_P(CodedLinear, MultipliesSeveralWeightsTogether) {
  const Format& format = GetParam().format;
  Numbers numbers(2);
  constexpr std::int64_t rows = 170;
  constexpr std::int64_t in = 512;
  const TwinRows x(numbers, DType::bf16, rows, in, 0);
  const TwinRows arranged(DType::bf16, rows, in, 0);
  std::vector<DeviceWeight> weights;
  std::vector<TwinRows> results;
  for (const std::int64_t out : {384, 40, 200, 128}) {
    weights.push_back(on_device_rounded(numbers, format, out, in));
    results.emplace_back(DType::f32, rows, out, 4);
  }
  std::vector<Linear> products;
  for (std::size_t i = 0; i < weights.size(); ++i)
    products.push_back(Call(x, arranged, weights[i], results[i]).product);
  const ArrangeInputs inputs = Call(x, arranged, weights[0], results[0]).inputs;
  const DenseProblem problem{.products = products, .inputs = &inputs};
  ASSERT_TRUE(coded_kernel.supports(problem));
  coded_kernel.run(problem, {}, default_stream());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    SCOPED_TRACE(i);
    expect_products(x, weights[i], format, results[i]);
  }
}

// A row's bits are its own: neither the rows beside it nor their number change them.
TEST_P(CodedLinear, RowsAreComputedAlike) {
  const Format& format = GetParam().format;
  Numbers numbers(3);
  constexpr std::int64_t in = 640;
  constexpr std::int64_t out = 200;
  const DeviceWeight w = on_device_rounded(numbers, format, out, in);
  const TwinRows x(numbers, DType::bf16, 400, in, 0);
  std::vector<std::byte> of_all;
  for (const std::int64_t rows : {400, 1, 65, 128, 257}) {
    const TwinRows arranged(DType::bf16, rows, in, 0);
    const TwinRows y(DType::f32, rows, out, 0);
    Call call(x, arranged, w, y);
    call.product.rows = call.inputs.rows = rows;
    coded_kernel.run({.products = {&call.product, 1}, .inputs = &call.inputs}, {},
                     default_stream());
    const std::vector<std::byte> bits = y.read_device();
    if (of_all.empty()) of_all = bits;
    EXPECT_TRUE(std::equal(bits.begin(), bits.end(), of_all.begin())) << rows << " rows";
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CodedLinear, testing::ValuesIn(cases()),
                         [](const auto& each) { return each.param.name; });

// The call that rounds inputs and multiplies: with codes where there are many rows, with the
// rounded numbers where there are few, or where one of the products can't take codes.
TEST(RoundedLinears, TakeCodesWhereAllProductsDo) {
  const Format format = cases().front().format;
  Format fine = format;
  fine.block_rows = 1;
  Numbers numbers(4);
  constexpr std::int64_t in = 512;
  for (const std::int64_t rows : {16, 17, 300}) {
    for (const bool all : {true, false}) {
      SCOPED_TRACE(cat(rows, " rows, ", all ? "all" : "not all"));
      const DeviceWeight w[2] = {on_device_rounded(numbers, format, 256, in),
                                 on_device_rounded(numbers, all ? format : fine, 256, in)};
      const TwinRows x(numbers, DType::bf16, rows, in, 0);
      const TwinRows arranged(DType::bf16, rows, in, 0);
      const TwinRows y[2] = {{DType::f32, rows, 256, 0}, {DType::f32, rows, 256, 0}};
      const Linear products[2] = {Call(x, arranged, w[0], y[0]).product,
                                  Call(x, arranged, w[1], y[1]).product};
      const ArrangeInputs inputs = Call(x, arranged, w[0], y[0]).inputs;
      std::vector<std::string> launches;
      kernels::cuda::Device& device = kernels::cuda::device_of(default_stream());
      device.log_launches(&launches);
      device_table().linears({.all = products, .count = 2, .inputs = &inputs}, default_stream());
      device.log_launches(nullptr);
      EXPECT_EQ(std::ranges::count(launches, "coded"), all && rows > 16 ? 1 : 0);
      // The numbers in bf16 are rounded once more.
      Format once_more = format;
      const std::vector<std::byte> read = y[1].read_device();
      const std::vector<double> numbers_of_row = rounded(x, rows - 1, once_more.inputs);
      for (std::int64_t o = 0; o < 256; o += 17) {
        double sum = 0;
        double magnitude = 0;
        for (std::int64_t k = 0; k < in; ++k) {
          const double product = numbers_of_row[static_cast<std::size_t>(k)] * w[1].host.at(o, k);
          sum += product;
          magnitude += std::abs(product);
        }
        EXPECT_NEAR(y[1].at(read.data(), rows - 1, o), sum, 0x1p-8 * magnitude);
      }
    }
  }
}

}  // namespace
}  // namespace motley::gpu_tests
