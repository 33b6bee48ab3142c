#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <ostream>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "gpu/device_weight.h"
#include "gpu/twin.h"
#include "kernels/cuda/linear/dense_kernels.h"
#include "kernels/cuda/primitives/device.h"

// The GPU's products against float64.
namespace motley::gpu_tests {
namespace {

using kernels::Linear;
using kernels::WeightKind;
using kernels::cpu::Numbers;

struct Sizes {
  std::int64_t rows;
  std::int64_t heads = 1;
  std::int64_t in = 0;
  std::int64_t out = 0;  // of a head
  std::int64_t w_rows_per_head = 0;
  std::int64_t w_first = 0;
};

// Every float32 sum of n products is off by at most n 2^-24 of the sum of their magnitudes. Tensor
// cores cut where others round, once for 16 products: less in all. Of float32 numbers they take ten
// bits behind the point: `cut` is what a product may lose by that.
void expect_products(const TwinRows& x, const DeviceWeight& w, const Sizes& sizes,
                     const TwinRows& y, bool transposed = false, double cut = 0) {
  const std::vector<std::byte> read = y.read_device();
  const std::int64_t inner = transposed ? sizes.out : sizes.in;
  for (std::int64_t row = 0; row < sizes.rows * sizes.heads; ++row) {
    const std::int64_t first = row % sizes.heads * sizes.w_rows_per_head + sizes.w_first;
    for (std::int64_t o = 0; o < y.width(); ++o) {
      double sum = 0;
      double magnitude = 0;
      for (std::int64_t k = 0; k < inner; ++k) {
        const double product =
            x.at(row, k) * (transposed ? w.host.at(first + k, o) : w.host.at(first + o, k));
        sum += product;
        magnitude += std::abs(product);
      }
      ASSERT_NEAR(y.at(read.data(), row, o), sum,
                  (static_cast<double>(inner) * 0x1p-24 + cut) * magnitude + 1e-30)
          << "row " << row << ", output " << o << " of " << y.width() << ", " << inner
          << " inputs, " << sizes.rows << " rows";
    }
  }
  y.expect_gaps_alone(read);
}

Linear call(const TwinRows& x, const DeviceWeight& w, const Sizes& sizes, const TwinRows& y,
            bool exact) {
  return {.rows = sizes.rows,
          .heads = sizes.heads,
          .x = x.device(),
          .x_type = x.type(),
          .x_stride = sizes.heads * x.stride(),
          .x_head_stride = x.stride(),
          .w = w.view,
          .w_rows_per_head = sizes.w_rows_per_head,
          .w_first = sizes.w_first,
          .out = sizes.out,
          .y = reinterpret_cast<float*>(y.device()),
          .y_stride = sizes.heads * y.stride(),
          .y_head_stride = y.stride(),
          .exact = exact};
}

void multiply_transposed(const Linear& product) {
  device_table().linear_per_head({.product = product, .transposed = true}, default_stream());
}

// By a kernel of one's choice; false if it refuses.
bool multiply_by(const kernels::cuda::DenseKernel& kernel, const Linear& product) {
  const StreamHandle stream = default_stream();
  const kernels::cuda::DenseProblem problem{.products = {&product, 1},
                                            .library = &kernels::cuda::device_of(stream).matmuls()};
  if (!kernel.supports(problem)) return false;
  kernel.run(problem, {}, stream);
  return true;
}

TEST(DeviceLinear, ExactServesEveryFormatAtAnyByte) {
  Numbers numbers(1);
  for (const kernels::cpu::Format& format : kernels::cpu::formats) {
    SCOPED_TRACE(format.text());
    for (const DType type : {DType::f32, DType::bf16}) {
      for (const std::int64_t rows : {1, 8, 9, 70}) {
        const Sizes sizes{.rows = rows, .in = 131, .out = 77, .w_rows_per_head = 77};
        const DeviceWeight w = on_device(numbers, format, 77, 131, rows % 2 == 0);
        const TwinRows x(numbers, type, rows, 131, 3);
        const TwinRows y(DType::f32, rows, 77, 3);
        device_table().linear(call(x, w, sizes, y, true), default_stream());
        finish();
        expect_products(x, w, sizes, y);
        const TwinRows back(numbers, type, rows, 77, 3);
        const TwinRows z(DType::f32, rows, 131, 3);
        multiply_transposed(call(back, w, sizes, z, true));
        finish();
        expect_products(back, w, sizes, z, true);
      }
    }
  }
}

TEST(DeviceLinear, HeadsHaveRowsOfOneWeight) {
  Numbers numbers(2);
  for (const bool exact : {true, false}) {
    for (const std::int64_t rows : {3, 40, 100}) {
      const Sizes sizes{
          .rows = rows, .heads = 4, .in = 136, .out = 48, .w_rows_per_head = 80, .w_first = 32};
      const DeviceWeight w = on_device(numbers, WeightKind::bf16, 320, 136);
      const TwinRows x(numbers, DType::bf16, rows * 4, 136, 8);
      const TwinRows y(DType::f32, rows * 4, 48, 4);
      device_table().linear(call(x, w, sizes, y, exact), default_stream());
      finish();
      expect_products(x, w, sizes, y);
      const TwinRows back(numbers, DType::bf16, rows * 4, 48, 8);
      const TwinRows z(DType::f32, rows * 4, 136, 3);
      multiply_transposed(call(back, w, sizes, z, exact));
      finish();
      expect_products(back, w, sizes, z, true);
    }
  }
}

// Latent attention's queries on their way to latents, and its values back: of float32 rows.
TEST(DeviceLinear, HeadsOfLatentsKeepTheirBitsInAnyCompany) {
  Numbers numbers(13);
  constexpr std::int64_t max_rows = 130;
  for (const auto& [type, kind, cut] :
       {std::tuple{DType::bf16, WeightKind::bf16, 0.0}, {DType::f32, WeightKind::f32, 0x1p-9}}) {
    const DeviceWeight w = on_device(numbers, kind, 4 * 192, 256);
    for (const bool transposed : {false, true}) {
      Sizes sizes{.rows = max_rows,
                  .heads = 4,
                  .in = 256,
                  .out = 64,
                  .w_rows_per_head = 192,
                  .w_first = transposed ? 0 : 128};
      const std::int64_t width = transposed ? sizes.in : sizes.out;
      const TwinRows x(numbers, type, max_rows * 4, transposed ? sizes.out : sizes.in, 0);
      const auto products = [&](std::int64_t rows, bool batch_invariant, const TwinRows& y) {
        sizes.rows = rows;
        Linear product = call(x, w, sizes, y, false);
        product.batch_invariant = batch_invariant;
        device_table().linear_per_head({.product = product, .transposed = transposed},
                                       default_stream());
        finish();
        std::vector<std::byte> bytes = y.read_device();
        bytes.resize(static_cast<std::size_t>(4 * rows * 4 * width));
        return bytes;
      };
      const TwinRows all(DType::f32, max_rows * 4, width, 0);
      for (const bool batch_invariant : {false, true}) {
        products(max_rows, batch_invariant, all);
        expect_products(x, w, sizes, all, transposed, cut);
      }
      std::vector<std::byte> expected = products(max_rows, true, all);
      for (const std::int64_t rows : {65, 64, 9, 1}) {
        const TwinRows some(DType::f32, max_rows * 4, width, 0);
        const std::vector<std::byte> alone = products(rows, true, some);
        expected.resize(alone.size());
        EXPECT_TRUE(alone == expected) << rows << " rows";
      }
    }
  }
}

// Shapes that share K among blocks, that don't, and that end anywhere.
constexpr std::array streamed_shapes = {
    Sizes{.rows = 0, .in = 8, .out = 1, .w_rows_per_head = 1},
    Sizes{.rows = 0, .in = 1000, .out = 130, .w_rows_per_head = 130},
    Sizes{.rows = 0, .in = 2048, .out = 384, .w_rows_per_head = 384},
    Sizes{.rows = 0, .in = 4360, .out = 257, .w_rows_per_head = 257},
    Sizes{.rows = 0, .in = 584, .out = 67601, .w_rows_per_head = 67601}};

TEST(DeviceLinear, StreamedIsRightForAnyNumberOfRows) {
  Numbers numbers(3);
  for (Sizes sizes : streamed_shapes) {
    if (sizes.out > 1000) continue;  // float64 takes its time
    const DeviceWeight w = on_device(numbers, WeightKind::bf16, sizes.out, sizes.in);
    for (const std::int64_t rows : {1, 7, 8, 9, 16, 31, 33, 64, 65, 150}) {
      sizes.rows = rows;
      const TwinRows x(numbers, DType::bf16, rows, sizes.in, 8);
      const TwinRows y(DType::f32, rows, sizes.out, 3);
      const Linear product = call(x, w, sizes, y, false);
      ASSERT_TRUE(multiply_by(kernels::cuda::gemv_streamed_kernel, product));
      finish();
      expect_products(x, w, sizes, y);
    }
  }
}

// Inputs and outputs that end anywhere, shorter and longer than a ring, of one batch of tiles and
// of more.
TEST(DeviceLinear, BulkIsRightForFewRows) {
  Numbers numbers(10);
  for (Sizes sizes :
       {Sizes{.rows = 0, .in = 32, .out = 1}, Sizes{.rows = 0, .in = 992, .out = 130},
        Sizes{.rows = 0, .in = 4352, .out = 1100}, Sizes{.rows = 0, .in = 96, .out = 9001}}) {
    sizes.w_rows_per_head = sizes.out;
    const DeviceWeight w = on_device(numbers, WeightKind::bf16, sizes.out, sizes.in);
    std::vector<std::byte> of_16_rows;
    for (const std::int64_t rows : {16, 1, 7, 8, 9}) {
      sizes.rows = rows;
      Numbers same(11);
      const TwinRows x(same, DType::bf16, rows, sizes.in, 8);
      const TwinRows y(DType::f32, rows, sizes.out, 3);
      const Linear product = call(x, w, sizes, y, false);
      ASSERT_TRUE(multiply_by(kernels::cuda::gemv_bulk_kernel, product));
      finish();
      expect_products(x, w, sizes, y);
      // A row's bits are its own.
      const std::vector<std::byte> read = y.read_device();
      if (of_16_rows.empty()) of_16_rows = read;
      ASSERT_TRUE(std::equal(read.begin(), read.end(), of_16_rows.begin())) << rows << " rows";
    }
  }
}

// Every format that the streamed GEMV reads packed, in whole steps and not.
class StreamedCodes : public testing::TestWithParam<kernels::cpu::Format> {};

bool takes(const kernels::cuda::DenseKernel& kernel, const kernels::cpu::Format& format,
           std::int64_t in) {
  Numbers numbers(1);
  const DeviceWeight w = on_device(numbers, format, 16, in, true);
  const TwinRows x(numbers, DType::bf16, 1, in, 8);
  const TwinRows y(DType::f32, 1, 16, 3);
  const Sizes sizes{.rows = 1, .in = in, .out = 16, .w_rows_per_head = 16};
  const Linear product = call(x, w, sizes, y, false);
  return bool(kernel.supports({.products = {&product, 1},
                               .library = &kernels::cuda::device_of(default_stream()).matmuls()}));
}

TEST_P(StreamedCodes, AreRightForAnyNumberOfRows) {
  Numbers numbers(7);
  const auto& kernel = kernels::cuda::gemv_streamed_codes_kernel;
  for (const std::int64_t in : {72, 96, 2080, 2176}) {
    if (in % 32 != 0 && !takes(kernel, GetParam(), in)) continue;
    const Sizes shape{.rows = 0, .in = in, .out = 150, .w_rows_per_head = 150};
    const DeviceWeight w = on_device(numbers, GetParam(), shape.out, in, true);
    for (const std::int64_t rows : {1, 9, 17, 64, 70}) {
      Sizes sizes = shape;
      sizes.rows = rows;
      const TwinRows x(numbers, DType::bf16, rows, in, 8);
      const TwinRows y(DType::f32, rows, sizes.out, 3);
      ASSERT_TRUE(multiply_by(kernel, call(x, w, sizes, y, false)));
      finish();
      expect_products(x, w, sizes, y);
    }
  }
}

std::vector<kernels::cpu::Format> streamed_formats() {
  std::vector<kernels::cpu::Format> taken;
  for (const std::int64_t group : {32, 64, 128, 256, 65536})
    taken.push_back({.kind = WeightKind::int4, .block_columns = group});
  for (const WeightKind kind : {WeightKind::int4, WeightKind::i8}) {
    for (const DType scales : {DType::f32, DType::f16, DType::bf16}) {
      for (const std::int64_t group : {32, 128, 65536})
        taken.push_back({.kind = kind,
                         .block_columns = group,
                         .scale_type = scales,
                         .scale_factor = 0.7F,
                         .zero_points = true});
    }
  }
  for (const WeightKind kind : {WeightKind::i8, WeightKind::f8_e4m3}) {
    for (const std::int64_t group : {32, 64, 128, 65536})
      taken.push_back({.kind = kind, .block_columns = group, .scale_type = DType::bf16});
    taken.push_back({.kind = kind, .block_rows = 65536, .block_columns = 65536});
    taken.push_back({.kind = kind, .block_rows = 128, .block_columns = 128});
  }
  taken.push_back({.kind = WeightKind::f8_e4m3, .block_columns = 32, .scale_type = DType::f8_e8m0});
  taken.push_back({.kind = WeightKind::f4_e2m1, .block_columns = 32, .scale_type = DType::f8_e8m0});
  taken.push_back({.kind = WeightKind::f4_e2m1,
                   .block_columns = 16,
                   .scale_type = DType::f8_e4m3,
                   .scale_factor = 0.013F});
  return taken;
}
INSTANTIATE_TEST_SUITE_P(Formats, StreamedCodes, testing::ValuesIn(streamed_formats()));

// Those of them that the bulk-copied GEMV reads.
class BulkCodes : public testing::TestWithParam<kernels::cpu::Format> {};

TEST_P(BulkCodes, AreRightForFewRows) {
  Numbers numbers(12);
  for (Sizes sizes :
       {Sizes{.rows = 0, .in = 32, .out = 1}, Sizes{.rows = 0, .in = 992, .out = 130},
        Sizes{.rows = 0, .in = 4352, .out = 1100}, Sizes{.rows = 0, .in = 96, .out = 9001}}) {
    sizes.w_rows_per_head = sizes.out;
    const DeviceWeight w = on_device(numbers, GetParam(), sizes.out, sizes.in, true);
    std::vector<std::byte> of_16_rows;
    for (const std::int64_t rows : {16, 1, 7, 8, 9}) {
      sizes.rows = rows;
      Numbers same(13);
      const TwinRows x(same, DType::bf16, rows, sizes.in, 8);
      const TwinRows y(DType::f32, rows, sizes.out, 3);
      ASSERT_TRUE(multiply_by(kernels::cuda::gemv_bulk_codes_kernel, call(x, w, sizes, y, false)));
      finish();
      expect_products(x, w, sizes, y);
      const std::vector<std::byte> read = y.read_device();
      if (of_16_rows.empty()) of_16_rows = read;
      ASSERT_TRUE(std::equal(read.begin(), read.end(), of_16_rows.begin())) << rows << " rows";
    }
  }
}

// Three maps of one x, with scales of their own.
TEST_P(BulkCodes, OfALaunchHaveTheirOwnScales) {
  Numbers numbers(14);
  constexpr std::int64_t in = 2080;
  std::vector<DeviceWeight> weights;
  std::vector<TwinRows> results;
  std::vector<Linear> products;
  const std::vector<std::int64_t> outs = {2100, 17, 300};
  const TwinRows x(numbers, DType::bf16, 3, in, 8);
  for (const std::int64_t out : outs) {
    weights.push_back(on_device(numbers, GetParam(), out, in, true));
    results.emplace_back(DType::f32, 3, out, 3);
  }
  const auto sizes_of = [&](std::size_t i) {
    return Sizes{.rows = 3, .in = in, .out = outs[i], .w_rows_per_head = outs[i]};
  };
  for (std::size_t i = 0; i < outs.size(); ++i)
    products.push_back(call(x, weights[i], sizes_of(i), results[i], false));
  kernels::cuda::gemv_bulk_codes(products, {}, default_stream());
  finish();
  for (std::size_t i = 0; i < outs.size(); ++i)
    expect_products(x, weights[i], sizes_of(i), results[i]);
}

std::vector<kernels::cpu::Format> bulk_formats() {
  std::vector<kernels::cpu::Format> taken;
  for (const kernels::cpu::Format& format : streamed_formats()) {
    if ((format.kind == WeightKind::i8 || format.kind == WeightKind::f8_e4m3) &&
        !format.zero_points)
      taken.push_back(format);
  }
  return taken;
}
INSTANTIATE_TEST_SUITE_P(Formats, BulkCodes, testing::ValuesIn(bulk_formats()));

class DecodedPanels : public testing::TestWithParam<kernels::cpu::Format> {};

TEST_P(DecodedPanels, AreRoundedOnce) {
  Numbers numbers(9);
  for (const std::int64_t in : {72, 2080}) {
    const Sizes shape{.rows = 0, .in = in, .out = 150, .w_rows_per_head = 150};
    DeviceWeight w = on_device(numbers, GetParam(), shape.out, in, true);
    for (double& number : w.host.numbers)
      number = double{bf16::from(static_cast<float>(number)).to_float()};
    for (const std::int64_t rows : {1, 9, 300}) {
      Sizes sizes = shape;
      sizes.rows = rows;
      const TwinRows x(numbers, DType::bf16, rows, in, 8);
      const TwinRows y(DType::f32, rows, sizes.out, 2);
      ASSERT_TRUE(multiply_by(kernels::cuda::decoded_kernel, call(x, w, sizes, y, false)));
      finish();
      expect_products(x, w, sizes, y);
    }
  }
}

std::vector<kernels::cpu::Format> formats_of_codes() {
  std::vector<kernels::cpu::Format> codes;
  for (const kernels::cpu::Format& format : kernels::cpu::formats) {
    const WeightKind kind = format.kind;
    if (kind != WeightKind::f32 && kind != WeightKind::f16 && kind != WeightKind::bf16)
      codes.push_back(format);
  }
  return codes;
}
INSTANTIATE_TEST_SUITE_P(Formats, DecodedPanels, testing::ValuesIn(formats_of_codes()));

// A weight of more than one panel, the last one shorter.
TEST(DeviceLinear, DecodedPanelsFollowEachOther) {
  Numbers numbers(10);
  const std::int64_t in = kernels::cuda::decoded_panel_numbers / 128;
  const kernels::cpu::Format format{.kind = WeightKind::i8, .block_columns = in};
  DeviceWeight w = on_device(numbers, format, 300, in, true);
  for (double& number : w.host.numbers)
    number = double{bf16::from(static_cast<float>(number)).to_float()};
  const Sizes sizes{.rows = 2, .in = in, .out = 300, .w_rows_per_head = 300};
  const TwinRows x(numbers, DType::bf16, sizes.rows, in, 8);
  const TwinRows y(DType::f32, sizes.rows, sizes.out, 4);
  ASSERT_TRUE(multiply_by(kernels::cuda::decoded_kernel, call(x, w, sizes, y, false)));
  finish();
  expect_products(x, w, sizes, y);
}

// Weights of several products in one panel, each with scales of its own.
TEST(DeviceLinear, DecodedResultsSideBySideAreOneProduct) {
  Numbers numbers(15);
  constexpr std::int64_t in = 520;
  constexpr std::int64_t width = 300;
  for (const kernels::cpu::Format& format :
       {kernels::cpu::Format{.kind = WeightKind::f8_e4m3, .block_rows = 128, .block_columns = 128},
        kernels::cpu::Format{.kind = WeightKind::int4, .block_columns = 8, .zero_points = true}}) {
    const TwinRows x(numbers, DType::bf16, 70, in, 8);
    const TwinRows y(DType::f32, 70, width, 4);
    std::vector<DeviceWeight> weights;
    std::vector<Linear> products;
    std::int64_t first = 0;
    for (const std::int64_t out : {200, 36, 64}) {
      weights.push_back(on_device(numbers, format, out, in, true));
      const Sizes sizes{.rows = 70, .in = in, .out = out, .w_rows_per_head = out};
      products.push_back(call(x, weights.back(), sizes, y, false));
      products.back().y += first;
      first += out;
    }
    const kernels::cuda::DenseKernel& kernel = kernels::cuda::decoded_kernel;
    const kernels::cuda::DenseProblem problem{
        .products = products, .library = &kernels::cuda::device_of(default_stream()).matmuls()};
    ASSERT_TRUE(kernel.supports(problem)) << kernel.supports(problem).reason();
    kernel.run(problem, {}, default_stream());
    finish();
    // As one weight.
    DeviceWeight all;
    all.host.view = {.out = width, .in = in};
    for (const DeviceWeight& weight : weights) {
      for (const double number : weight.host.numbers)
        all.host.numbers.push_back(double{bf16::from(static_cast<float>(number)).to_float()});
    }
    expect_products(x, all, {.rows = 70, .in = in, .out = width, .w_rows_per_head = width}, y);
  }
}

// The smallest and largest scales of MXFP4 are no numbers that bf16 rounds or loses.
TEST(DeviceLinear, StreamedTakesEveryScaleOfMxfp4) {
  Numbers numbers(8);
  const kernels::cpu::Format format{
      .kind = WeightKind::f4_e2m1, .block_columns = 32, .scale_type = DType::f8_e8m0};
  DeviceWeight w = on_device(numbers, format, 16, 32, true);
  std::vector<std::byte> scales(16);
  for (std::size_t row = 0; row < 16; ++row) {
    const int exponent = static_cast<int>(row) * 15;
    scales[row] = std::byte(exponent);
    for (std::size_t k = 0; k < 32; ++k)
      w.host.numbers[row * 32 + k] *=
          std::ldexp(1.0, exponent - 127) / static_cast<double>(w.host.scales[row]);
  }
  w.scales = DeviceArray<std::byte>(scales);
  w.view.scales = w.scales.data();
  const Sizes sizes{.rows = 1, .in = 32, .out = 16, .w_rows_per_head = 16};
  const TwinRows x(numbers, DType::bf16, 1, 32, 8);
  const TwinRows y(DType::f32, 1, 16, 3);
  ASSERT_TRUE(multiply_by(kernels::cuda::gemv_streamed_codes_kernel, call(x, w, sizes, y, false)));
  finish();
  expect_products(x, w, sizes, y);
}

// By the table's choice with batch_invariant, and by the streamed GEMV always.
TEST(DeviceLinear, ARowsBitsAreItsOwn) {
  Numbers numbers(4);
  const auto streamed = [](const Linear& p) {
    ASSERT_TRUE(multiply_by(kernels::cuda::gemv_streamed_kernel, p));
  };
  const auto table = [](const Linear& p) { device_table().linear(p, default_stream()); };
  for (Sizes sizes : streamed_shapes) {
    constexpr std::int64_t max_rows = 150;
    const DeviceWeight w = on_device(numbers, WeightKind::bf16, sizes.out, sizes.in);
    const TwinRows x(numbers, DType::bf16, max_rows, sizes.in, 0);
    const auto expect_own_bits = [&](const auto& multiply) {
      const TwinRows alone(DType::f32, max_rows, sizes.out, 0);
      for (std::int64_t row = 0; row < max_rows; ++row) {
        sizes.rows = 1;
        Linear one = call(x, w, sizes, alone, false);
        one.x = x.device() + 2 * row * sizes.in;
        one.y += row * sizes.out;
        one.batch_invariant = true;
        multiply(one);
      }
      for (const std::int64_t rows : {9, 17, 64, 65, 150}) {
        sizes.rows = rows;
        const TwinRows together(DType::f32, rows, sizes.out, 0);
        Linear all = call(x, w, sizes, together, false);
        all.batch_invariant = true;
        multiply(all);
        finish();
        const std::vector<std::byte> read = together.read_device();
        std::vector<std::byte> expected = alone.read_device();
        expected.resize(read.size());
        ASSERT_TRUE(read == expected) << rows << " rows, " << sizes.out << " x " << sizes.in;
      }
    };
    expect_own_bits(streamed);
    expect_own_bits(table);
  }
}

TEST(DeviceLinear, ProductsOfOneXTogether) {
  Numbers numbers(6);
  for (const auto& [rows, in] :
       {std::pair<std::int64_t, std::int64_t>{2, 520}, {2, 544}, {70, 520}}) {
    const TwinRows x(numbers, DType::bf16, rows, in, 8);
    std::vector<DeviceWeight> weights;
    std::vector<TwinRows> results;
    std::vector<Sizes> sizes;
    std::vector<Linear> products;
    // More than one launch holds, and one that another kernel must compute.
    for (const std::int64_t out : {300, 1, 128, 40, 129, 7}) {
      const WeightKind kind = out == 40 ? WeightKind::f32 : WeightKind::bf16;
      sizes.push_back({.rows = rows, .in = in, .out = out, .w_rows_per_head = out});
      weights.push_back(on_device(numbers, kind, out, in));
      results.emplace_back(DType::f32, rows, out, 4);
      products.push_back(call(x, weights.back(), sizes.back(), results.back(), false));
    }
    device_table().linears({.all = products.data(), .count = std::int64_t(products.size())},
                           default_stream());
    finish();
    for (std::size_t i = 0; i < products.size(); ++i)
      expect_products(x, weights[i], sizes[i], results[i]);
  }
}

TEST(DeviceLinear, WeightsAndResultsSideBySideAreOneProduct) {
  Numbers numbers(9);
  constexpr std::int64_t in = 264;
  for (const bool exact : {true, false}) {
    for (const std::int64_t rows : {3, 70}) {
      const Sizes whole{.rows = rows, .in = in, .out = 160, .w_rows_per_head = 160};
      const DeviceWeight w = on_device(numbers, WeightKind::bf16, 160, in);
      const TwinRows x(numbers, DType::bf16, rows, in, 8);
      const TwinRows together(DType::f32, rows, 160, 4);
      const TwinRows parts(DType::f32, rows, 160, 4);
      device_table().linear(call(x, w, whole, together, exact), default_stream());
      std::vector<Linear> products;
      std::int64_t first = 0;
      for (const std::int64_t out : {96, 24, 40}) {
        Linear part = call(x, w, whole, parts, exact);
        part.w.data = w.bytes.data() + 2 * first * in;
        part.w.out = part.w_rows_per_head = part.out = out;
        part.y += first;
        products.push_back(part);
        first += out;
      }
      device_table().linears({.all = products.data(), .count = 3}, default_stream());
      finish();
      ASSERT_TRUE(together.read_device() == parts.read_device()) << rows << " rows";
      expect_products(x, w, whole, parts);
    }
  }
}

TEST(DeviceLinear, TheLibraryKeepsOneOrder) {
  Numbers numbers(8);
  for (const auto& [in, out] :
       {std::pair<std::int64_t, std::int64_t>{2048, 512}, {512, 2048}, {2048, 4352}, {4096, 264}}) {
    constexpr std::int64_t max_rows = 1100;
    Sizes sizes{.rows = 0, .in = in, .out = out, .w_rows_per_head = out};
    const DeviceWeight w = on_device(numbers, WeightKind::bf16, out, in);
    const TwinRows x(numbers, DType::bf16, max_rows, in, 0);
    std::vector<std::byte> expected;
    for (const std::int64_t rows :
         {max_rows, std::int64_t{1}, std::int64_t{20}, std::int64_t{65}, std::int64_t{512}}) {
      sizes.rows = rows;
      const TwinRows y(DType::f32, rows, out, 0);
      Linear product = call(x, w, sizes, y, false);
      product.batch_invariant = true;
      ASSERT_TRUE(multiply_by(kernels::cuda::cublaslt_batch_invariant_kernel, product))
          << "not on this card";
      finish();
      const std::vector<std::byte> read = y.read_device();
      if (rows == max_rows) expected = read;
      ASSERT_TRUE(std::equal(read.begin(), read.end(), expected.begin()))
          << rows << " rows of " << out << " x " << in;
    }
  }
}

TEST(DeviceLinear, TheLibraryServesManyRowsWhereverTheyBegin) {
  Numbers numbers(5);
  const Sizes sizes{.rows = 300, .in = 520, .out = 264, .w_rows_per_head = 264};
  const DeviceWeight w = on_device(numbers, WeightKind::bf16, 264, 520);
  const TwinRows x(numbers, DType::bf16, 301, 520, 8);
  const TwinRows y(DType::f32, 300, 264, 4);
  EXPECT_TRUE(multiply_by(kernels::cuda::cublaslt_kernel, call(x, w, sizes, y, false)));
  finish();
  expect_products(x, w, sizes, y);
  // From the second row on, 16 bytes off, by the kernel that the table chooses.
  Linear shifted = call(x, w, sizes, y, false);
  shifted.x = x.device() + 2 * x.stride();
  shifted.rows = 299;
  shifted.y += y.stride();
  device_table().linear(shifted, default_stream());
  finish();
  const std::vector<std::byte> read = y.read_device();
  for (std::int64_t row = 1; row < 300; ++row) {
    double sum = 0;
    for (std::int64_t k = 0; k < 520; ++k) sum += x.at(row, k) * w.host.at(7, k);
    ASSERT_NEAR(y.at(read.data(), row, 7), sum, 520 * 0x1p-24 * 520);
  }
}

// A problem of one product, by all kernels that support it.
struct BitsCase {
  WeightKind kind;
  std::int64_t group;  // of int4
  std::int64_t out, in, rows;
};
std::string name_of(const BitsCase& c) {
  const std::string kind = c.kind == WeightKind::bf16  ? "bf16"
                           : c.kind == WeightKind::f32 ? "f32"
                                                       : cat("int4_of_", c.group);
  return cat(kind, "_", c.out, "_x_", c.in, "_rows_", c.rows);
}
std::ostream& operator<<(std::ostream& out, const BitsCase& c) { return out << name_of(c); }

std::vector<BitsCase> bits_cases() {
  std::vector<BitsCase> cases;
  for (const BitsCase& shape :
       {BitsCase{WeightKind::bf16, 0, 1, 32, 0}, BitsCase{WeightKind::bf16, 0, 130, 1000, 0},
        BitsCase{WeightKind::bf16, 0, 384, 2048, 0}, BitsCase{WeightKind::bf16, 0, 260, 4352, 0},
        BitsCase{WeightKind::int4, 32, 150, 72, 0}, BitsCase{WeightKind::int4, 128, 150, 2080, 0},
        BitsCase{WeightKind::f32, 0, 264, 520, 0}}) {
    for (const std::int64_t rows : {1, 8, 9, 16, 17, 32, 64, 65, 150}) {
      cases.push_back(shape);
      cases.back().rows = rows;
    }
  }
  return cases;
}

class DenseKernelBits : public testing::TestWithParam<BitsCase> {};

// Also: a kernel that says that it is batch-invariant gives a row the bits that it has among more
// rows. Base rows never see adapters here: deltas are added behind, so a problem has none.
TEST_P(DenseKernelBits, AreThoseOfTheArithmetic) {
  constexpr std::int64_t max_rows = 150;
  const BitsCase& c = GetParam();
  Numbers numbers(14);
  Sizes sizes{.rows = c.rows, .in = c.in, .out = c.out, .w_rows_per_head = c.out};
  const DeviceWeight w =
      on_device(numbers, {.kind = c.kind, .block_columns = c.group}, c.out, c.in, true);
  const DType type = c.kind == WeightKind::f32 ? DType::f32 : DType::bf16;
  const TwinRows x(numbers, type, max_rows, c.in, 8);
  const std::int64_t gap = (4 - c.out % 4) % 4;
  const auto bits = [&](const kernels::cuda::DenseKernel& kernel, std::int64_t rows,
                        bool batch_invariant) -> std::vector<std::byte> {
    sizes.rows = rows;
    const TwinRows y(DType::f32, rows, c.out, gap);
    Linear product = call(x, w, sizes, y, false);
    product.batch_invariant = batch_invariant;
    if (!multiply_by(kernel, product)) return {};
    finish();
    // TF32 rounds what is multiplied, and decoded weights are rounded to bf16.
    const bool rounds = type == DType::f32 || kernel.info.name.starts_with("decoded");
    if (rows <= 9) expect_products(x, w, sizes, y, false, rounds ? 0x1p-8 : 0);
    return y.read_device();
  };
  std::map<std::string_view, std::vector<std::byte>> first_of;
  for (const kernels::cuda::DenseKernel* kernel : kernels::cuda::all_dense_kernels()) {
    for (const bool batch_invariant : {false, true}) {
      SCOPED_TRACE(cat(kernel->info.name, batch_invariant ? ", batch-invariant" : ""));
      const std::vector<std::byte> own = bits(*kernel, c.rows, batch_invariant);
      if (own.empty()) continue;
      const auto [first, fresh] = first_of.try_emplace(kernel->info.arithmetic.name, own);
      EXPECT_TRUE(first->second == own) << "other bits than another kernel of its arithmetic";
      if (!kernel->batch_invariant) continue;
      for (const std::int64_t more : {std::int64_t{16}, max_rows}) {
        const std::vector<std::byte> among = bits(*kernel, more, batch_invariant);
        if (more < c.rows || among.empty()) continue;
        EXPECT_TRUE(std::equal(own.begin(), own.end(), among.begin())) << "among " << more;
      }
    }
  }
  EXPECT_TRUE(first_of.contains(kernels::cuda::exact_kernel.info.arithmetic.name));
}

INSTANTIATE_TEST_SUITE_P(Shapes, DenseKernelBits, testing::ValuesIn(bits_cases()),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace motley::gpu_tests
